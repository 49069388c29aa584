"""Keep the copy of a run up to date while it trains, and bring it up to date later: `pods sync`."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pods.config.schema import Config
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking.rows import read_rows
from pods.runs.tracking.sinks import Copy, check_key, open_copy
from pods.system.errors import as_short_text

LAG_SECONDS = 60.0  # that a copy may be behind


class Tracker:
    """The copy of a run in progress, or none; its first failure ends it and never the run.

    W&B takes some 2 ms per row, so rows are sent before a checkpoint, and if checkpoints are rare,
    once a minute. A thread would take its time from the training clock.
    """

    def __init__(self, config: Config | None = None, store: RunStore | None = None) -> None:
        """Open the copy that the config asks for; without a config there is none."""
        self.copy: Copy | None = None
        self.updated = time.monotonic()
        if config is not None and store is not None and config.tracking.mode != "none":
            with self._off_after_failure():
                self.copy = open_copy(config, store, config.tracking.mode)

    def update(self, now: bool = False) -> None:
        """Send the rows that the copy lacks if `now` is set, or if that was a minute ago."""
        if self.copy is not None and (now or time.monotonic() - self.updated >= LAG_SECONDS):
            with self._off_after_failure():
                self.copy.send()
            self.updated = time.monotonic()

    def finish(self) -> None:
        """Send the last rows and close, within half a minute even if the network has died."""
        if self.copy is not None:
            with self._off_after_failure():
                self.copy.finish(self.copy.store.status()["state"])

    @contextmanager
    def _off_after_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # W&B raises many kinds
            self.copy = None
            print(
                f"the tracker is off for this run ({as_short_text(error)}); the run continues, and "
                "`pods sync` can send its rows later"
            )


class NotSynced(ValueError):
    """Some runs could not be copied."""


def sync(folders: Sequence[Path], mode: str) -> Iterator[str]:
    """Bring runs to a tracker, as `tracking.mode` names it, from their files; yield a line each.

    Runs that are running are skipped. `NotSynced`: the tracker failed, or a run cannot be read.
    """
    if mode == "online":
        check_key()
    failed = 0
    for store in map(RunStore, folders):
        try:
            message = _sync_run(store, mode)
        except NotSynced:  # the next run would wait as long for the same error
            raise
        except BlockingIOError:
            message = "skipped: it is running"
        except READ_ERRORS as error:
            message = f"cannot be read: {as_short_text(error)}"
            failed += 1
        yield f"{'/'.join(store.folder.parts[-2:])}: {message}"
    if failed:
        raise NotSynced(f"{failed} of {len(folders)} runs could not be read")


def _sync_run(store: RunStore, mode: str) -> str:
    config = store.config()

    if not read_rows(config, store):
        return "skipped: it has no steps yet"
    with store.lock():
        state = state_of(store, ours=True)
        if state == "running":
            return "skipped: it is running"
        try:
            return f"{open_copy(config, store, mode).finish(state)} rows sent"
        except Exception as error:  # W&B raises many kinds
            why = f"the tracker failed ({as_short_text(error)}); the same command tries again"
            raise NotSynced(f"{store.folder}: {why}") from error
