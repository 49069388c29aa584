"""A console is not the run: one that goes away or was closed stops nothing, and nobody commands it.

What is printed may be anybody's: the error of a rule, a name in a file. It is shown as text.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What a terminal obeys, and does not show: escapes, the ends of lines, the direction of text."""


def shown(text: str) -> str:
    r"""A text as it may be printed, whoever wrote it: control characters are named, not obeyed.

    >>> shown("red \x1b[31m")
    'red \\x1b[31m'
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class Plain:
    """A text stream that shows control characters as text."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what can be shown."""
        return self.stream.write(shown(text))

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's."""
        return getattr(self.stream, name)


class Forgiving:
    """A text stream that loses what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream` as long as that works."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if there is somewhere to flush to."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's."""
        return getattr(self._stream, name)


@contextmanager
def forgiving_console() -> Iterator[None]:
    """Within the block, printing never raises."""
    with redirect_stdout(Forgiving(sys.stdout)), redirect_stderr(Forgiving(sys.stderr)):
        yield


@contextmanager
def plain_console() -> Iterator[None]:
    """Within the block, what is printed is shown as text, with `?` for what the console lacks."""
    open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        replace_what_is_lacking(stream)
    with redirect_stdout(Plain(sys.stdout)), redirect_stderr(Plain(sys.stderr)):
        yield


def replace_what_is_lacking(stream: TextIO) -> None:
    """Print `?` for a character that the console does not have, as an old one has no arrow."""
    with suppress(AttributeError, OSError, ValueError):  # a test's, or one that went away
        stream.reconfigure(errors="replace")  # type: ignore[attr-defined]


def open_what_is_closed() -> None:
    """Put nothing in the place of a standard stream that was closed, before a file gets its number.

    Python has None there, and cannot print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
