"""What a person sees of a sweep: a table that is redrawn on a terminal, a line a job elsewhere."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pods.console import Plain, shown
from pods.runs.status import duration, format_statuses, statuses


def terminal() -> TextIO:
    """Standard output as it takes what moves a terminal's cursor."""
    return sys.stdout.stream if isinstance(sys.stdout, Plain) else sys.stdout


class Board:
    """The jobs that run now, and a line for each that has ended."""

    def __init__(self, jobs: int) -> None:
        """Expect `jobs` jobs to end."""
        self.jobs, self.ended, self.started = jobs, 0, time.monotonic()
        self.live = Live(
            console=Console(file=terminal(), highlight=False, soft_wrap=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.on_terminal = sys.stdout.isatty()

    def __enter__(self) -> "Board":
        """Begin to draw, on a terminal."""
        if self.on_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal clean."""
        self.live.stop()

    def show(self, running: Sequence[Path], waiting: int) -> None:
        """Redraw the table."""
        if self.on_terminal:
            lasted = duration(time.monotonic() - self.started)
            counts = f"{self.ended} of {self.jobs} ended, {len(running)} running, {waiting} waiting"
            table = format_statuses(statuses(running))
            self.draw(f"{table}\n{counts}, {lasted}")

    def draw(self, text: str) -> None:
        """Put a text in the place of the one before; print it, where there is no terminal."""
        if self.on_terminal:
            self.live.update(Text(shown(text), no_wrap=True), refresh=True)
        else:
            print(text, flush=True)

    def end(self, line: str) -> None:
        """Print a job's last line, above the table."""
        self.ended += 1
        text = shown(f"[{self.ended}/{self.jobs}] {line}")
        if self.on_terminal:
            self.live.console.print(text, markup=False)
        else:
            print(text, flush=True)
