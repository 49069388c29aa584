"""What a person sees of a run: a bar on a terminal, lines now and then everywhere else."""

import sys
import time

from tqdm import tqdm

from pods.config import BudgetConfig

QUIET_SECONDS = 30.0  # between lines where there is no terminal to draw a bar on


class Progress:
    """Step, train time / budget, reward and last accuracy."""

    def __init__(self, budget: BudgetConfig) -> None:
        """Measure progress by the training clock if it is limited, else by steps."""
        self.seconds, self.steps = budget.train_seconds, budget.max_steps
        self.accuracy = "-"
        self.printed = time.monotonic()
        self.bar = tqdm(
            total=self.seconds or self.steps,
            disable=not sys.stderr.isatty(),
            bar_format="{percentage:3.0f}%|{bar:20}| {desc}",
            leave=False,
        )

    def step(self, step: int, train_seconds: float, reward: float) -> None:
        """Show a committed step."""
        at = train_seconds if self.seconds else step
        self.bar.n = min(at, self.bar.total or at)
        limit = f"/{self.seconds:g}" if self.seconds else ""
        steps = f"/{self.steps}" if self.steps else ""
        line = (
            f"step {step}{steps}  train {train_seconds:.1f}{limit} s  "
            f"reward {reward:.2f}  accuracy {self.accuracy}"
        )
        self.bar.set_description_str(line)
        if self.bar.disable and time.monotonic() - self.printed > QUIET_SECONDS:
            self.print(line)

    def evaluating(self, step: int) -> None:
        """Show that an evaluation is going on."""
        self.bar.set_description_str(f"evaluating step {step}")

    def evaluated(self, step: int, train_seconds: float, accuracy: float, seconds: float) -> None:
        """Print an evaluation's result."""
        self.accuracy = f"{accuracy:.3f}"
        self.print(
            f"step {step:>6}  train {train_seconds:8.1f} s  accuracy {accuracy:.3f}  "
            f"(evaluated in {seconds:.1f} s)"
        )

    def print(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.write(line)
        sys.stdout.flush()
        self.printed = time.monotonic()

    def close(self) -> None:
        """Leave the terminal clean."""
        self.bar.close()
