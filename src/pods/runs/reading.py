"""Small files of a run folder, read as what they are: perhaps cut off, edited, or made to harm.

Whoever may write into a run folder must not be able to stop a verb that looks at a whole study. So
each file is a regular one and of limited size, its content is neither deep nor of other types than
expected, and anything else is `Damaged`, in a line that names the file.
"""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

SMALL = 64 * 1024
LARGE = 64 * 1024 * 1024
"""Bytes of files that grow with the number of problems."""
DEEPEST = 20
LONGEST_INTEGER = 20  # digits
Kinds = tuple[type, ...]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where it is there: 7 x faster


class Damaged(ValueError):
    """A file that is not what was written; the message names it."""

    def __init__(self, path: Path, why: object) -> None:
        """Say what is wrong, in one line."""
        super().__init__(f"{path} is damaged: {' '.join(str(why).split())}")


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file.

    Raises:
        FileNotFoundError: there is none.
        Damaged: it is something else, such as a pipe that never ends, or larger than `limit` bytes.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise Damaged(path, "it is no file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # no pipe put there since can hold us
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Damaged(path, f"it is larger than {limit:,} bytes")
    return content


def read_json(path: Path, limit: int = SMALL) -> Any:
    """The content of a JSON file; numbers are finite.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_bytes`; or it is no JSON, or deeper than anything that is written here.
    """
    content = read_bytes(path, limit)
    try:
        found = json.loads(content, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, error if content else "it is empty") from error
    if _is_deep(found):
        raise Damaged(path, f"it is more than {DEEPEST} levels deep")
    return found


def read_object(
    path: Path,
    needs: Mapping[str, Kinds],
    may: Mapping[str, Kinds] | None = None,
    limit: int = SMALL,
) -> dict[str, Any]:
    """A JSON object and, of the fields that are named here, the right types.

    Args:
        path: of the file.
        needs: types of the fields that must be there.
        may: types of those that may be.
        limit: in bytes.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_json`; or it is no such object.
    """
    found = read_json(path, limit)
    if not isinstance(found, dict):
        raise Damaged(path, "it holds no object")
    for name in needs:
        if name not in found:
            raise Damaged(path, f"it has no {name}")
    for name, kinds in {**needs, **(may or {})}.items():
        if name in found and type(found[name]) not in kinds:
            raise Damaged(path, f"{name} is no {_words(kinds)}")
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping without aliases, which could stand for more than any memory holds.

    Raises:
        FileNotFoundError: there is none.
        Damaged: as `read_bytes`; or it is no YAML, too deep, has an alias, or is no mapping.
    """
    content = read_bytes(path, SMALL)
    try:
        depth = 0
        for event in yaml.parse(content, Loader=LOADER):  # libyaml's composer overflows the stack
            if isinstance(event, yaml.AliasEvent):
                raise Damaged(path, "it has an alias")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise Damaged(path, f"it is more than {DEEPEST} levels deep")
        found = LOADER(content).get_single_data()
    except (yaml.YAMLError, UnicodeError, RecursionError, OverflowError) as error:
        raise Damaged(path, error) from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise Damaged(path, "it holds no keys with values")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _int(text: str) -> int:
    return int(text) if len(text) <= LONGEST_INTEGER else _refuse(f"{text[:LONGEST_INTEGER]}...")


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEPEST):
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [value for one in inner
                 for value in (one.values() if isinstance(one, dict) else one)]  # fmt: skip
        if not level:
            return False
    return True


def _words(kinds: Kinds) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "truth value", dict: "object",
             list: "list", type(None): "null"}  # fmt: skip
    return " or ".join(names[kind] for kind in kinds)
