"""Console output that cannot harm a run: a closed terminal stops nothing, and escapes are text.

What is printed may come from anybody, such as the error of a user's rule or a name in a file.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal obeys instead of showing: escapes, line ends, text direction."""


def printable(text: str) -> str:
    r"""Escape control characters, so that a text is safe to print.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def wrapped(text: str, width: int) -> str:
    """Wrap sentences between words; rows of a table, which have gaps, are left alone.

    >>> wrapped("a sentence of words", 12), wrapped("a  row  of  a  table", 12)
    ('a sentence\\n  of words', 'a  row  of  a  table')
    """
    lines = (
        line
        if len(line) <= width or "  " in line.strip()
        else fill(
            line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for line in text.split("\n")
    )
    return "\n".join(lines)


class PrintableStream:
    """A text stream that escapes control characters."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self.stream = stream
        self.wraps = False
        """Sentences are wrapped if this is a terminal; not for texts that are to be copied."""

    def write(self, text: str) -> int:
        """Write the text with control characters escaped."""
        text = printable(text)
        if self.wraps and self.stream.isatty():
            text = wrapped(text, get_terminal_size().columns)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the stream."""
        return getattr(self.stream, name)


class LossyStream:
    """A text stream that drops what it cannot write."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream` as long as that works."""
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
        """Delegate everything else to the stream."""
        return getattr(self._stream, name)


@contextmanager
def lossy_console() -> Iterator[None]:
    """Make printing never raise within the block."""
    with redirect_stdout(LossyStream(sys.stdout)), redirect_stderr(LossyStream(sys.stderr)):
        yield


@contextmanager
def printable_console() -> Iterator[None]:
    """Escape everything that is printed within the block."""
    prepare_console()
    with redirect_stdout(PrintableStream(sys.stdout)), redirect_stderr(PrintableStream(sys.stderr)):
        yield


def prepare_console() -> None:
    """Open closed standard streams on /dev/null, and print `?` for characters they cannot encode.

    Python has None for a stream that was closed, and the next file would get its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a test's stream, or one that is gone
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
