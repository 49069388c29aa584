"""The kinds of values that a key can have, and what it says of itself: msgspec checks the values.

A key is declared as `lr: Annotated[Positive, key("learning rate")]`; its value is in `conf/`.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

LARGEST = sys.float_info.max  # infinity is not allowed anywhere
OPERATIONAL = {"operational": True}

# The title of a kind says what follows "must be" in an error.
Flag = Annotated[bool, Meta(title="true or false")]
Whole = Annotated[int, Meta(ge=0, title="an integer >= 0")]
Count = Annotated[int, Meta(ge=1, title="an integer >= 1")]
Amount = Annotated[float, Meta(ge=0, le=LARGEST, title="a number >= 0")]
Positive = Annotated[float, Meta(gt=0, le=LARGEST, title="a number > 0")]
Share = Annotated[float, Meta(ge=0, le=1, title="a number from 0 to 1")]

# A pattern is searched for, so each begins with \A and ends with \Z.
Text = Annotated[
    str, Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*\Z", title="text on one line")
]
FileName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z",
        title="letters, digits, dots, - or _, at most 100: it names a file",
    ),
]
OwnFunction = Annotated[str, Meta(pattern=r"\A[\w.]+:\w+\Z", title="module:function")]


def one_of(names: Sequence[str]) -> Meta:
    """Allow the name of a built-in function, or a user's own `module:function`."""
    options = "|".join(names)
    return Meta(
        pattern=rf"\A({options}|[\w.]+:\w+)\Z",
        title=f"one of {', '.join(names)}, or module:function",
    )


def key(meaning: str) -> Meta:
    """Say what a science key means: it can change what a run computes."""
    return Meta(description=meaning)


def operational(meaning: str) -> Meta:
    """Say what an operational key means: it is not part of a run's identity."""
    return Meta(description=meaning, extra=OPERATIONAL)
