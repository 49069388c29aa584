"""Keep the W&B copy of a run in progress up to date; nothing here can stop the run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pods.config.schema import Config
from pods.runs.history import clocks
from pods.runs.store import RunStore
from pods.runs.tracking.exporter import ENDED, WandbRun, check_key
from pods.runs.tracking.rows import History, read_history, summary
from pods.system.errors import as_short_text

LAG_SECONDS = 60.0  # that W&B may be behind


class NoTracker:
    """The tracker of tracking=none, which does nothing."""

    def update(self, now: bool = False) -> None:
        """Do nothing."""

    def finish(self, exit_code: int) -> None:
        """Do nothing."""


class WandbTracker:
    """Send a run's rows to W&B as its files grow; the first failure is reported and ends that.

    W&B takes some 2 ms per row, so a step does not wait for it: rows are sent before a checkpoint,
    and where checkpoints are rare, once a minute. A thread would take its time from the training
    clock. What earlier attempts could not send is sent first.
    """

    def __init__(self, config: Config, folder: Path, mode: str) -> None:
        """Open a W&B run in the run folder; offline mode needs neither an account nor a network."""
        self.config, self.store = config, RunStore(folder)
        self.wandb_run: WandbRun | None = None
        self.gap: str | None = None
        self.updated = time.monotonic()
        with self._off_after_failure():
            if mode == "online":
                check_key()
            self.wandb_run = WandbRun(config, self.store, folder, mode)
            if mode == "offline":  # the folder of an earlier attempt has the rows before
                steps = [clock["step"] for clock in clocks(self.store).values()]
                self.wandb_run.first = max([0, *(2 * step + 1 for step in steps)])

    def update(self, now: bool = False) -> None:
        """Send the rows that W&B lacks if `now` is set, or if that was last done a minute ago."""
        if self.wandb_run is None or not (now or time.monotonic() - self.updated >= LAG_SECONDS):
            return
        with self._off_after_failure():
            self._send(read_history(self.config, self.store, self.wandb_run.first), self.wandb_run)
        self.updated = time.monotonic()

    def finish(self, exit_code: int) -> None:
        """Send the last rows and close, within half a minute even if the network has died."""
        if self.wandb_run is None:
            return
        with self._off_after_failure():
            state = self.store.status()["state"]
            history = read_history(self.config, self.store, settled=state not in ENDED)
            self._send(history, self.wandb_run)
            self.wandb_run.close(summary(self.store, history.rows, state), exit_code)

    def _send(self, history: History, wandb_run: WandbRun) -> None:
        rows, gap = history.after(wandb_run.first)
        wandb_run.send(rows)
        if gap is not None and gap != self.gap:
            print(
                f"no further rows are sent to W&B for now ({gap}); the run continues, and "
                "`pods evaluate`, then `pods sync` can complete them"
            )
        self.gap = gap

    @contextmanager
    def _off_after_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # W&B raises many kinds
            self.wandb_run = None
            print(
                f"W&B is off for this run ({as_short_text(error)}); the run continues, and "
                "`pods sync` can send its rows later"
            )


Tracker = NoTracker | WandbTracker


def open_tracker(config: Config, folder: Path) -> Tracker:
    """Return the tracker that the config asks for."""
    mode = config.tracking.wandb
    return NoTracker() if mode == "none" else WandbTracker(config, folder, mode)
