"""Plain values in, a typed `Config` out, or one line with key, value and what is allowed.

`python -m pods.validate` prints the config reference.
"""

import difflib
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pods.config import Config, Key
from pods.console import shown

TYPE_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list[float]: "a list of numbers",
    list[str]: "a list of texts",
}


LONGEST_VALUE = 80  # characters of it in a message


class ConfigError(ValueError):
    """A key with a value that is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        """Say `key=value: allowed`; of a long value its beginning."""
        text = "null" if value is None else shown(str(value))
        if len(text) > LONGEST_VALUE:
            text = f"{text[:LONGEST_VALUE]}..."
        super().__init__(f"{key}={text}: {allowed}")


@cache
def leaves(cls: type = Config, prefix: str = "") -> Mapping[str, tuple[Any, Key]]:
    """Map every leaf key's dotted name to its type and metadata."""
    found: dict[str, tuple[Any, Key]] = {}
    for name, hint in _hints(cls).items():
        if get_origin(hint) is Annotated:
            found[prefix + name] = get_args(hint)
        else:
            found |= leaves(hint, f"{prefix}{name}.")
    return found


def parse(values: Mapping[str, Any]) -> Config:
    """Make a config of plain nested values; says nothing of keys that are at odds (`checks.py`).

    Raises:
        ConfigError: an unknown or missing key, a wrong type, a value out of bounds.
    """
    config: Config = _section(Config, values, "")
    return config


def parse_key(name: str, value: object) -> Any:
    """Check one top-level key as `parse` does: a leaf's value, or a section of `Config`.

    Raises:
        KeyError: there is no such key.
        ConfigError: as `parse`.
    """
    return _value(_hints(Config)[name], value, name)


def unknown_key(name: str) -> str:
    """Say that a key does not exist, and which ones do, or may have been meant.

    >>> unknown_key("nm.typo"), unknown_key("sede")
    ('no such key; nm has n, m, groups', 'no such key; did you mean seed?')
    """
    group = name.rpartition(".")[0] + "."
    siblings = [known.removeprefix(group) for known in leaves() if known.startswith(group)]
    if siblings:
        return f"no such key; {group[:-1]} has {', '.join(siblings)}"
    same = [known for known in leaves() if known.rpartition(".")[2] == name.rpartition(".")[2]]
    near = same or difflib.get_close_matches(name, leaves(), n=1)
    return f"no such key; did you mean {near[0]}?" if near else "no such key; see conf/README.md"


def allowed(hint: Any, key: Key) -> str:
    """Say in words what a key may be.

    >>> allowed(*leaves()["nm.n"])
    'must be an integer >= 1'
    >>> allowed(*leaves()["budget.train_seconds"])
    'must be a number > 0, or null'
    """
    inner = _inner(hint)
    among = ", ".join(key.among)
    words = f"one of {among}" if among else key.form or TYPE_NAMES[inner]
    if math.isfinite(key.high) and math.isfinite(key.above):
        words += f" > {key.above:g} and <= {key.high:g}"
    elif math.isfinite(key.high):
        words += f" from {key.low:g} to {key.high:g}"
    elif math.isfinite(key.low):
        words += f" >= {key.low:g}"
    elif math.isfinite(key.above):
        words += f" > {key.above:g}"
    return f"must be {words}" + (", or null" if inner != hint else "")


def _section(cls: Any, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(prefix.rstrip("."), values, "must be a group of keys")
    hints = _hints(cls)
    for given in values:
        if given not in hints:
            name = f"{prefix}{given}"
            raise ConfigError(name, values[given], unknown_key(name))
    made = {}
    for field, hint in hints.items():
        name = prefix + field
        if field not in values and hasattr(cls, field):
            continue  # its default: a run that an earlier version froze is read all the same
        if field not in values:
            raise ConfigError(name, "", "missing (earlier versions did not have it)")
        made[field] = _value(hint, values[field], name)
    return cls(**made)


def _value(hint: Any, value: Any, name: str) -> Any:
    if get_origin(hint) is Annotated:
        return _leaf(name, value, *get_args(hint))
    return _section(hint, value, f"{name}.")


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """The type of each field; to make them out takes longer than to check a config."""
    return get_type_hints(cls, include_extras=True)


def _leaf(name: str, value: Any, hint: Any, key: Key) -> Any:
    inner = _inner(hint)
    if value is None and inner != hint:
        return None
    if inner is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if inner == list[float] and isinstance(value, list):
        value = [float(v) if isinstance(v, int | float) else v for v in value]
    if not _fits(value, inner):
        raise ConfigError(name, value, allowed(hint, key))
    if key.among and value not in key.among:
        raise ConfigError(name, value, allowed(hint, key))
    if key.pattern and not re.fullmatch(key.pattern, value):
        raise ConfigError(name, value, allowed(hint, key))
    if any(shown(text) != text for text in _texts(value)):
        raise ConfigError(name, value, "must have no control characters")
    if inner in (int, float) and not _within(value, key):
        raise ConfigError(name, value, allowed(hint, key))
    return value


def _texts(value: Any) -> list[str]:
    """The texts of a value."""
    listed = value if isinstance(value, list) else [value]
    return [text for text in listed if isinstance(text, str)]


def _within(value: float, key: Key) -> bool:
    return math.isfinite(value) and key.low <= value <= key.high and value > key.above


def _inner(hint: Any) -> Any:
    """`int` of `int | None`; any other hint is returned as it is."""
    options = [option for option in get_args(hint) if option is not type(None)]
    return options[0] if type(None) in get_args(hint) else hint


def _fits(value: Any, hint: Any) -> bool:
    if get_args(hint):
        return isinstance(value, list) and all(type(v) is get_args(hint)[0] for v in value)
    return type(value) is hint


def reference() -> str:
    """The config reference: one table row a key."""
    rows = ["| key | allowed | kind | meaning |", "| --- | --- | --- | --- |"]
    for name, (hint, key) in leaves().items():
        kind = "operational" if key.operational else "science"
        words = allowed(hint, key).removeprefix("must be ")
        meaning = key.meaning.replace("|", "\\|")
        rows.append(f"| `{name}` | {words} | {kind} | {meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(reference())
