"""Keep the copies of a run in progress up to date; nothing here can stop the run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pods.config.schema import Config
from pods.runs.history import clocks
from pods.runs.store import RunStore
from pods.runs.tracking.exporter import ENDED, WandbRun, check_key
from pods.runs.tracking.rows import History, read_history, summary
from pods.runs.tracking.tensorboard import TensorBoardRun, check_installed
from pods.system.errors import as_short_text

LAG_SECONDS = 60.0  # that a copy may be behind
SYNC = {"W&B": "pods sync", "TensorBoard": "pods sync --tensorboard"}
"""The verb that completes a copy later, by the copy's name."""


class LiveCopy:
    """Send a run's rows to one place as its files grow; the first failure ends that, with a line.

    W&B takes some 2 ms per row, so a step does not wait for it: rows are sent before a checkpoint,
    and where checkpoints are rare, once a minute. A thread would take its time from the training
    clock. What earlier attempts could not send is sent first.
    """

    def __init__(
        self, name: str, config: Config, store: RunStore, start: Callable[[], "OpenRun"]
    ) -> None:
        """Open the copy.

        Args:
            name: of the place, one of `SYNC`.
            config: of the run.
            store: of the run.
            start: opens the copy, and may raise anything.
        """
        self.name, self.config, self.store = name, config, store
        self.opened: OpenRun | None = None
        self.gap: str | None = None
        self.updated = time.monotonic()
        with self._off_after_failure():
            self.opened = start()

    def update(self, now: bool) -> None:
        """Send the rows that the copy lacks if `now` is set, or if that was a minute ago."""
        if self.opened is None or not (now or time.monotonic() - self.updated >= LAG_SECONDS):
            return
        with self._off_after_failure():
            self._send(read_history(self.config, self.store, self.opened.first), self.opened)
        self.updated = time.monotonic()

    def finish(self, exit_code: int) -> None:
        """Send the last rows and close, within half a minute even if the network has died."""
        if self.opened is None:
            return
        with self._off_after_failure():
            state = self.store.status()["state"]
            history = read_history(self.config, self.store, settled=state not in ENDED)
            self._send(history, self.opened)
            self.opened.close(summary(self.store, history.rows, state), exit_code)

    def _send(self, history: History, opened: "OpenRun") -> None:
        rows, gap = history.after(opened.first)
        opened.send(rows)
        if gap is not None and gap != self.gap:
            print(
                f"no further rows are sent to {self.name} for now ({gap}); the run continues, and "
                f"`pods evaluate`, then `{SYNC[self.name]}` can complete them"
            )
        self.gap = gap

    @contextmanager
    def _off_after_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # W&B raises many kinds
            self.opened = None
            print(
                f"{self.name} is off for this run ({as_short_text(error)}); the run continues, and "
                f"`{SYNC[self.name]}` can send its rows later"
            )


OpenRun = WandbRun | TensorBoardRun


class Tracker:
    """The copies of a run that its config asks for, or none."""

    def __init__(self, copies: Sequence[LiveCopy] = ()) -> None:
        """Keep the copies."""
        self.copies = copies

    def update(self, now: bool = False) -> None:
        """Send rows to copies that are a minute behind, or with `now` to all."""
        for copy in self.copies:
            copy.update(now)

    def finish(self, exit_code: int) -> None:
        """Complete and close the copies."""
        for copy in self.copies:
            copy.finish(exit_code)


def open_tracker(config: Config, folder: Path) -> Tracker:
    """Open the copies that the config asks for; offline W&B needs no account and no network."""
    store, mode = RunStore(folder), config.tracking.wandb

    def open_wandb() -> WandbRun:
        if mode == "online":
            check_key()
        opened = WandbRun(config, store, folder, mode)
        if mode == "offline":  # the folder of an earlier attempt has the rows before
            steps = [clock["step"] for clock in clocks(store).values()]
            opened.first = max([0, *(2 * step + 1 for step in steps)])
        return opened

    def open_tensorboard() -> TensorBoardRun:
        check_installed()
        return TensorBoardRun(store)

    copies = [LiveCopy("W&B", config, store, open_wandb)] if mode != "none" else []
    if config.tracking.tensorboard:
        copies.append(LiveCopy("TensorBoard", config, store, open_tensorboard))
    return Tracker(copies)
