"""Strict reading of one row of a data set: JSON as the standard defines it, and text fields."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

Fields = Mapping[str, Any]


def parse_line(line: bytes) -> Fields:
    """Return the object on one line of JSON; a key may not appear twice, and NaN is not a number.

    Raises:
        ValueError: the line is anything else.
    """
    text = line.decode("utf-8")
    try:
        row = json.loads(
            text, object_pairs_hook=_object, parse_int=float, parse_constant=_reject_constant
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (column {error.colno}: {error.msg})") from error
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(row, dict):
        raise ValueError(f"must be a JSON object, not {type(row).__name__}")
    return row


def text_field(fields: Fields, name: str) -> str:
    """Return a field that must hold text.

    Raises:
        ValueError: it is missing, null, of another type, blank, or not valid Unicode.
    """
    if name not in fields:
        raise ValueError(f"`{name}` is missing")
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`{name}` is not valid Unicode (character {error.start + 1})") from error
    if not any(character.isprintable() and not character.isspace() for character in value):
        raise ValueError(f"`{name}` is blank")
    return value


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key appears twice")
    return fields


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON ({name})")
