"""A console is not the run: one that goes away, or a pipe that nobody reads, stops nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO


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
