"""Console output that cannot harm a run: a closed terminal stops nothing."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

DIRECTION = "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that reorder what is around them
CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{DIRECTION}]")


def printable(text: str) -> str:
    r"""Show control characters as text, such as those in the error of a user's rule.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class LossyStream:
    """A text stream that drops what it cannot write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if that works."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lossy_console() -> Iterator[None]:
    """Make printing never raise within the block."""
    with redirect_stdout(LossyStream(sys.stdout)), redirect_stderr(LossyStream(sys.stderr)):
        yield


def prepare_console() -> None:
    """Open closed standard streams on /dev/null, and print `?` for characters they cannot encode.

    Python has None for a stream that was closed, and the next file would get its number.
    """
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is the stream's
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a test's stream, or one that is gone
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
