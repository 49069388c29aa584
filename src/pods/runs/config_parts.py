"""A frozen config from its text, each of its parts read once: those of a study are mostly the same.

To read a run's config.yaml as YAML and to check it takes milliseconds; a study may have thousands,
which differ in a line or two. What a file says comes from its bytes, always: nothing is kept on
the disk, so nothing can be out of date.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import yaml

from pods.config import Config
from pods.runs.reading import LOADER
from pods.validate import parse_key

_KEY = re.compile(rb"^(?=[a-z_])", re.MULTILINE)
_PART = re.compile(rb"([a-z_]+):(?: [^\n]*)?\n(?:(?: +|- )[^ \n][^\n]*\n)*")
_LONGEST = 4096  # bytes of a part; such a one nests no deeper than the YAML reader can go
_PROBLEMS = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


def read_config(content: bytes, otherwise: Callable[[], Config]) -> Config:
    """The config that a frozen file holds.

    Args:
        content: of the file.
        otherwise: reads it whole; called where a file is not as this package writes it, so that
            its errors are those of that reader alone.
    """
    try:
        return Config(**_together(map(_value, filter(None, _KEY.split(content)))))
    except _PROBLEMS:
        return otherwise()


def _together(parts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Keys and values of a file's parts.

    Raises:
        ValueError: a key is there twice.
    """
    pairs = list(parts)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


@lru_cache(maxsize=10_000)
def _value(part: bytes) -> tuple[str, Any]:
    """Key and checked value of one part: lines from one key at the margin up to the next.

    What it says depends on none of the other parts: whatever could reach over its end (anchors,
    ends of documents, line ends of other kinds, an open quote) is no such part, or no YAML alone.

    Raises:
        one of `_PROBLEMS`: it is no such part, or its value is not allowed.
    """
    found = _PART.fullmatch(part)
    if found is None or len(part) > _LONGEST or not part.isascii() or b"&" in part or b"\r" in part:
        raise ValueError("no part of a file as this package writes it")
    values = dict(LOADER(part).get_single_data())
    name = found[1].decode()
    if list(values) != [name]:
        raise ValueError(f"{name} is not its only key")
    return name, parse_key(name, values[name])
