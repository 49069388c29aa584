"""The progress of a run: a bar on a terminal, a line now and then everywhere else."""

import sys
import time

from pods.config.schema import BudgetConfig

QUIET_SECONDS = 30.0  # between lines where there is no terminal to draw a bar on
REDRAW_SECONDS = 0.1


class Progress:
    """Shows step, training time against the budget, reward and last accuracy."""

    def __init__(self, budget: BudgetConfig) -> None:
        """Measure progress by the training clock if it is limited, else by steps."""
        # here, so that the GPU benchmark imports the engines where rich is not installed
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.seconds, self.steps = budget.train_seconds, budget.max_steps
        self.accuracy = "-"
        self.printed = self.drawn = time.monotonic()
        self.bar = Bar(
            TextColumn("{task.percentage:3.0f}%"),
            BarColumn(20),
            TextColumn("{task.description}", markup=False),
            console=Console(file=sys.stdout, highlight=False, soft_wrap=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task("", total=self.seconds or self.steps)
        self.bar.start()

    def step(self, step: int, train_seconds: float, reward: float) -> None:
        """Show a committed step."""
        limit = f"/{self.seconds:g}" if self.seconds else ""
        steps = f"/{self.steps}" if self.steps else ""
        line = (
            f"step {step}{steps}  train {train_seconds:.1f}{limit} s  "
            f"reward {reward:.2f}  accuracy {self.accuracy}"
        )
        self.draw(line, train_seconds if self.seconds else step)
        if self.bar.disable and time.monotonic() - self.printed > QUIET_SECONDS:
            self.print(line)

    def draw(self, line: str, completed: float | None = None) -> None:
        """Redraw the bar, unless it was redrawn a moment ago."""
        if not self.bar.disable and time.monotonic() - self.drawn > REDRAW_SECONDS:
            self.drawn = time.monotonic()
            self.bar.update(self.task, description=line, completed=completed, refresh=True)

    def evaluating(self, step: int) -> None:
        """Show that an evaluation is running."""
        self.draw(f"evaluating step {step}")

    def evaluated(
        self, step: int, train_seconds: float, accuracy: float, seconds: float, test_set: str = ""
    ) -> None:
        """Print the result of an evaluation; a further test set is named."""
        self.accuracy = self.accuracy if test_set else f"{accuracy:.3f}"
        where = f" on {test_set}" if test_set else ""
        self.print(
            f"step {step:>6}  train {train_seconds:8.1f} s  accuracy{where} {accuracy:.3f}  "
            f"(evaluated in {seconds:.1f} s)"
        )

    def print(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar.disable:
            print(line, flush=True)
        else:
            self.bar.console.print(line, markup=False)
        self.printed = time.monotonic()

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self.bar.stop()
