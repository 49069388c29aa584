"""The progress of a run: a line that is redrawn on a terminal, one now and then everywhere else."""

import sys
import time
from shutil import get_terminal_size

from pods.config.schema import BudgetConfig

REDRAW_SECONDS, QUIET_SECONDS = 0.1, 30.0  # between lines on a terminal, and elsewhere
CLEAR = "\r\x1b[2K"  # removes the terminal's current line


class Progress:
    """Shows step, training time against the budget, reward and last accuracy."""

    def __init__(self, budget: BudgetConfig) -> None:
        self.steps = f"/{budget.max_steps}" if budget.max_steps else ""
        self.seconds = f"/{budget.train_seconds:g}" if budget.train_seconds else ""
        self.accuracy = "-"
        self.on_terminal = sys.stdout.isatty()
        self.shown = time.monotonic()

    def step(self, step: int, train_seconds: float, reward: float) -> None:
        """Show a committed step."""
        line = (
            f"step {step}{self.steps}  train {train_seconds:.1f}{self.seconds} s  "
            f"reward {reward:.2f}  accuracy {self.accuracy}"
        )
        if self.on_terminal:
            self.redraw(line)
        elif time.monotonic() - self.shown > QUIET_SECONDS:
            self.print(line)

    def evaluated(self, step: int, train_seconds: float, accuracy: float, seconds: float) -> None:
        """Print the result of an evaluation."""
        self.accuracy = f"{accuracy:.3f}"
        self.print(
            f"step {step:>6}  train {train_seconds:8.1f} s  accuracy {accuracy:.3f}  "
            f"(evaluated in {seconds:.1f} s)"
        )

    def print(self, line: str) -> None:
        """Print a line that stays."""
        print(f"{CLEAR if self.on_terminal else ''}{line}", flush=True)
        self.shown = time.monotonic()

    def close(self) -> None:
        """Remove the line that is redrawn."""
        if self.on_terminal:
            print(CLEAR, end="", flush=True)

    def redraw(self, line: str) -> None:
        """Replace the terminal's current line, unless that was done a moment ago."""
        if self.on_terminal and time.monotonic() - self.shown > REDRAW_SECONDS:
            print(f"{CLEAR}{line[: get_terminal_size().columns - 1]}", end="", flush=True)
            self.shown = time.monotonic()
