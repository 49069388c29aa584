"""Show the jobs of a sweep: a live table on a terminal, and one line per job that has ended."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pods.runs.status import format_statuses, status_row
from pods.runs.store import RunStore
from pods.system.console import printable
from pods.system.text import duration

MEASURED = 0.02  # share of a sweep after which its speed is known well enough


class LiveTable(Live):
    """A table of the running jobs, which rich draws only on a terminal, below the lines."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.ended = 0
        self.began = time.monotonic()
        console = Console(force_terminal=sys.stdout.isatty(), highlight=False, soft_wrap=True)
        super().__init__(
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def show(self, active: Sequence[RunStore]) -> None:
        """Draw the table anew from the jobs that may run, with the time left at this speed."""
        if not self.console.is_terminal:
            return

        known = [status_row(store.folder) for store in active]
        running = [row for row in known if row["state"] == "running"]
        about_to_end = [row for row in known if row["state"] == "done"]
        ended = self.ended + len(about_to_end)
        waiting = self.jobs - ended - len(running)

        elapsed = time.monotonic() - self.began
        text = f"{format_statuses(running)}\n{ended} of {self.jobs} ended, "
        text += f"{len(running)} running, {waiting} waiting, {duration(elapsed)}"
        done = ended + sum(row["progress"] for row in running)
        if done >= MEASURED * self.jobs:
            text += f"; about {duration(elapsed * (self.jobs - done) / done)} left"
        self.update(Text(printable(text), no_wrap=True), refresh=True)

    def end(self, line: str) -> None:
        """Print a line about a job that has ended, above the table."""
        self.ended += 1
        self.console.print(Text(printable(f"[{self.ended}/{self.jobs}] {line}")))
