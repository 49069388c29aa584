"""The declaration of one config key: its meaning, its bounds, and whether it is operational."""

import math
from dataclasses import MISSING, dataclass, field
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A form that a text must have."""

    pattern: str
    """Regular expression that the entire text must match."""
    description: str
    """The same for a reader, as it follows "must be"."""


FILE_NAME = Form(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "letters, digits, dots, - or _, at most 100: it names a file",
)
FUNCTION = Form(r"[\w.]+:\w+", "module:function")
SELECTOR = Form(
    r"uniform|greso|mopps|[\w.]+:\w+", "one of uniform, greso, mopps, or module:function"
)
PAIR = Form(r"n[1-9]\d*_m[1-9]\d*", "a pair such as n64_m16")
CHOOSER = Form(r"expected_progress|[\w.]+:\w+", "expected_progress or module:function")
ALLOCATION = Form(r"equal|knapsack|[\w.]+:\w+", "one of equal, knapsack, or module:function")
RULE = Form(r"\w+|[\w.]+:\w+", "a rule's name or module:function")


@dataclass(frozen=True)
class Key:
    """The meaning of a config key and the bounds of its value."""

    meaning: str
    low: float = -math.inf
    """Smallest value allowed."""
    above: float = -math.inf
    """Values must be larger than this."""
    high: float = math.inf
    """Largest value allowed."""
    form: Form | None = None
    """Form of a text, if not every text is allowed."""
    operational: bool = False
    """The key is not part of a run's identity, since it does not change what a run computes."""


def key(meaning: str, *, default: Any = MISSING, **bounds: Any) -> Any:
    """Declare a config key; `bounds` are the other fields of `Key`.

    A default is only for keys that frozen configs of earlier versions lack. A dataclass with
    sections after keys must be `kw_only`, because type checkers see a default in each key.
    """
    metadata = {"key": Key(meaning, **bounds)}
    if isinstance(default, list):  # which no two configs may share
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)
