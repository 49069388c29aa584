"""`pods run`: train one run, or with -m a sweep."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from pods.config.schema import CONF


def add_options(parser: ArgumentParser) -> None:
    """Declare nothing: Hydra parses the words."""


def become(words: Sequence[str]) -> NoReturn:
    """Become `run.py`, which stands beside `conf/` in a clone and in an installed package."""
    file = next(
        path for path in (CONF.parent / "src/run.py", CONF.parent / "run.py") if path.is_file()
    )
    # -P: modules beside the script, such as pods/types.py, must not hide those of Python
    os.execv(sys.executable, [sys.executable, "-P", str(file), *words])
