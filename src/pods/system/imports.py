"""Import what a user names as `module:function`."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def import_function(name: str) -> Any:
    """Import the function that `module:function` names, also from the working folder.

    `ValueError`: there is no such module or function, or it cannot be imported.
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that it hides no installed module

    try:
        imported = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # importing runs the user's module
        why = str(error) if isinstance(error, ImportError | AttributeError) else repr(error)
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            why += f"; searched {here} and PYTHONPATH"
        raise ValueError(f"cannot import it as module:function ({why})") from error

    if not callable(imported):
        raise ValueError(f"cannot import it as module:function ({function} is not a function)")
    return imported


def call_own(
    key: str, function: Callable[..., Any], arguments: tuple[Any, ...], read: Callable[[Any], T]
) -> T:
    """Call a user's function, and return what `read` makes of its result.

    `ValueError`: either raised something; the one line names key, file and line.
    """
    try:
        return read(function(*arguments))
    except Exception as error:  # they may raise anything
        if isinstance(error, OSError | MemoryError):  # the machine may be the cause
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = f"{key}: {kind}{error} ({_place(function, error)})"
        raise ValueError(" ".join(text.split())) from error


def _place(function: Callable[..., Any], error: Exception) -> str:
    """Return file and line of a function's file where an error was raised, or of its definition."""
    code = getattr(inspect.unwrap(function), "__code__", call_own.__code__)
    line = code.co_firstlineno
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == code.co_filename and frame.lineno is not None:
            line = frame.lineno
    return f"{code.co_filename}:{line}"
