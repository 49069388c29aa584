"""Read small files of a run folder that may be incomplete, edited or malicious.

Whoever can write into a run folder must not be able to stop a verb that reads a whole study. So a
file must be regular and of limited size, its content of limited depth and of the expected types.
Anything else raises `Damaged`, with one line that names the file.
"""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

SMALL = 64 * 1024  # bytes
LARGE = 64 * 1024 * 1024  # bytes, for files that grow with the number of problems
MAX_DEPTH = 20
MAX_DIGITS = 20  # of an integer
Types = tuple[type, ...]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is 7 x faster


class Damaged(ValueError):
    """A file is not what was written; the message names it."""

    def __init__(self, path: Path, reason: object) -> None:
        """Say what is wrong, in one line."""
        super().__init__(f"{path} is damaged: {' '.join(str(reason).split())}")


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        FileNotFoundError: there is none.
        Damaged: it is not regular, such as an endless pipe, or larger than `limit` bytes.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise Damaged(path, "it is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may have become a pipe since
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Damaged(path, f"it is larger than {limit:,} bytes")
    return content


def read_json(path: Path, limit: int = SMALL) -> Any:
    """Return the content of a JSON file, with finite numbers only.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_bytes`; or it is not JSON, or nested too deeply.
    """
    content = read_bytes(path, limit)
    try:
        value = json.loads(content, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, error if content else "it is empty") from error
    if _is_deep(value):
        raise Damaged(path, f"it has more than {MAX_DEPTH} levels")
    return value


def read_object(
    path: Path,
    required: Mapping[str, Types],
    optional: Mapping[str, Types] | None = None,
    limit: int = SMALL,
) -> dict[str, Any]:
    """Return a JSON object whose named fields have the right types; others are not checked.

    Args:
        required: types of the fields that must be present.
        optional: types of the fields that may be present.
        limit: in bytes.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_json`; or it is not such an object.
    """
    value = read_json(path, limit)
    if not isinstance(value, dict):
        raise Damaged(path, "it is not an object")
    for name in required:
        if name not in value:
            raise Damaged(path, f"it has no {name}")
    for name, types in {**required, **(optional or {})}.items():
        if name in value and type(value[name]) not in types:
            raise Damaged(path, f"{name} must be {' or '.join(kind.__name__ for kind in types)}")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the YAML mapping of a file.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_bytes` and `parse_yaml`.
    """
    content = read_bytes(path, SMALL)
    try:
        return parse_yaml(content)
    except ValueError as error:
        raise Damaged(path, error) from error


def parse_yaml(content: bytes) -> dict[str, Any]:
    """Return a YAML mapping; aliases are refused, since a few can expand to fill any memory.

    Raises:
        ValueError: it is not YAML, nested too deeply, has an alias, or is not a mapping of texts.
    """
    try:
        depth = 0
        for event in yaml.parse(content, Loader=LOADER):  # libyaml's composer overflows the stack
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("it has an alias")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"it has more than {MAX_DEPTH} levels")
        value = LOADER(content).get_single_data()
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(error) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError("it does not map keys to values")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _int(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS else _refuse(f"{text[:MAX_DIGITS]}...")


def _is_deep(content: Any) -> bool:
    """Say whether lists and objects are nested in more than `MAX_DEPTH` levels."""
    level = [content]
    for _ in range(MAX_DEPTH):
        inner = [value for value in level if isinstance(value, dict | list)]
        level = [
            item
            for value in inner
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True
