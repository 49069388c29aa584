"""The declaration of one config key: its meaning, its bounds, and whether it is operational."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A form that a whole text, or each of a list, must have, and what follows "must be"."""

    pattern: str
    description: str


FILE_NAME = Form(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "letters, digits, dots, - or _, at most 100: it names a file",
)
FUNCTION = Form(r"[\w.]+:\w+", "module:function")


def one_of(names: Sequence[str]) -> Form:
    """Return the form of a built-in function's name, or a `module:function` of one's own."""
    pattern = "|".join((*names, FUNCTION.pattern))
    return Form(pattern, f"one of {', '.join(names)}, or {FUNCTION.description}")


@dataclass(frozen=True)
class Key:
    """The meaning of a config key and the bounds of its value."""

    meaning: str
    low: float = -math.inf
    above: float = -math.inf  # values must be larger than this
    high: float = math.inf
    form: Form | None = None
    operational: bool = False
    """The key is not part of a run's identity, since it does not change what a run computes."""


def key(meaning: str, **bounds: Any) -> Any:
    """Declare a science key; `bounds` are the other fields of `Key`. Its value is in `conf/`.

    A dataclass with sections after keys must be `kw_only`, because type checkers see a default in
    each key.
    """
    return field(metadata={"key": Key(meaning, **bounds)})


def operational(meaning: str, **bounds: Any) -> Any:
    """Declare an operational key."""
    return key(meaning, operational=True, **bounds)
