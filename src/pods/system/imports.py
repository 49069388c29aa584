"""Import what a user names as `module:function`."""

import importlib
import sys
from pathlib import Path
from typing import Any


def import_function(name: str) -> Any:
    """Import the function that `module:function` names, also from the working folder.

    Raises:
        ValueError: there is no such module or function, or it cannot be imported.
    """
    module, _, function = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that it hides no installed module
    try:
        imported = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # importing runs the user's module
        why = str(error) if isinstance(error, ImportError | AttributeError) else repr(error)
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            why = f"{error}; searched {here} and PYTHONPATH"
        raise ValueError(f"cannot import it as module:function ({why})") from error
    if not callable(imported):
        raise ValueError(f"cannot import it as module:function ({function} is not a function)")
    return imported
