"""Show the jobs of a sweep: a live table on a terminal, otherwise one line per ended job."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pods.runs.status import duration, format_statuses, statuses
from pods.system.console import PrintableStream, printable

MEASURED = 0.02  # share of a sweep after which its speed is known well enough


def terminal() -> TextIO:
    """Return standard output without the filter that shows control characters as text."""
    return sys.stdout.stream if isinstance(sys.stdout, PrintableStream) else sys.stdout


class LiveTable:
    """A table of the running jobs, below one line for each job that has ended."""

    def __init__(self, jobs: int) -> None:
        """Prepare a table for a number of jobs that have to end."""
        self.jobs, self.ended, self.started = jobs, 0, time.monotonic()
        self.live = Live(
            console=Console(file=terminal(), highlight=False, soft_wrap=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.on_terminal = sys.stdout.isatty()

    def __enter__(self) -> "LiveTable":
        """Start to draw if this is a terminal."""
        if self.on_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the table from the terminal."""
        self.live.stop()

    def show(self, running: Sequence[Path], waiting: int) -> None:
        """Draw the table anew."""
        if self.on_terminal:
            elapsed, rows = time.monotonic() - self.started, statuses(running)
            done = sum(row["state"] == "done" for row in rows)  # whose processes are about to end
            ended, active = self.ended + done, len(rows) - done
            counts = f"{ended} of {self.jobs} ended, {active} running, {waiting} waiting"
            left = time_left(elapsed, self.ended + sum(row["progress"] for row in rows), self.jobs)
            self.draw(f"{format_statuses(rows)}\n{counts}, {duration(elapsed)}{left}")

    def draw(self, text: str) -> None:
        """Replace the text drawn before; if this is no terminal, print it."""
        if self.on_terminal:
            self.live.update(Text(printable(text), no_wrap=True), refresh=True)
        else:
            print(text, flush=True)

    def end(self, line: str) -> None:
        """Print a line about a job that has ended, above the table."""
        self.ended += 1
        text = printable(f"[{self.ended}/{self.jobs}] {line}")
        if self.on_terminal:
            self.live.console.print(text, markup=False)
        else:
            print(text, flush=True)


def time_left(elapsed: float, done: float, jobs: int) -> str:
    """Say how long a sweep still takes if it goes as fast as so far; "" at its beginning.

    Args:
        elapsed: seconds since it began.
        done: number of jobs that have ended, with the shares of those that are running.
        jobs: number of jobs in all.

    >>> time_left(60, 2.0, 8), time_left(60, 7.5, 8), time_left(1, 0.01, 8)
    ('; about 3 min left', '; under a minute left', '')
    """
    if done < MEASURED * jobs:
        return ""
    minutes = round(elapsed * (jobs - done) / done / 60)
    return f"; about {minutes} min left" if minutes else "; under a minute left"
