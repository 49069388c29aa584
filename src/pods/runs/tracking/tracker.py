"""Keep the copy of a run up to date while it trains, and bring it up to date later: `pods sync`."""

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pods.config.schema import Config
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking.rows import read_rows
from pods.runs.tracking.sinks import Copy, check_key, longest_wait, open_copy
from pods.system.errors import as_short_text

T = TypeVar("T")
LAG_SECONDS = 60.0  # that a copy may be behind
PATIENCE_SECONDS = 15.0  # after W&B itself should have given up


class Tracker:
    """The copy of a run in progress, or none; its first failure ends it and never the run.

    W&B takes some 2 ms per row, so rows are sent before a checkpoint, and if checkpoints are rare,
    once a minute. A thread that sent them meanwhile would take its time from the training clock.
    """

    def __init__(self, config: Config | None = None, store: RunStore | None = None) -> None:
        """Open the copy that the config asks for; without a config there is none."""
        self.copy: Copy | None = None
        self.updated = time.monotonic()
        if config is not None and store is not None and config.tracking.mode != "none":
            self.copy = self._try(lambda: open_copy(config, store, config.tracking.mode))

    def update(self, now: bool = False) -> None:
        """Send the rows that the copy lacks if `now` is set, or if that was a minute ago."""
        copy = self.copy
        if copy is not None and (now or time.monotonic() - self.updated >= LAG_SECONDS):
            self._try(copy.send)
            self.updated = time.monotonic()

    def finish(self) -> None:
        """Send the last rows and close, within a minute even if network or tracker have died."""
        copy = self.copy
        if copy is not None:
            self._try(lambda: copy.finish(copy.store.status()["state"]))

    def _try(self, call: Callable[[], T]) -> T | None:
        """Let the tracker do something, and wait; None if it fails or hangs, and it is off then.

        It does so in a thread, since nothing else can leave a call that hangs.
        """
        results: list[T] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # W&B raises many kinds, and may call sys.exit
                failures.append(error)

        thread = threading.Thread(target=work, name="tracker", daemon=True)
        thread.start()
        limit = longest_wait() + PATIENCE_SECONDS
        self._join(thread, limit)

        if thread.is_alive():
            atexit._clear()  # the handler that W&B has set would wait for its service for ever
            self._turn_off(f"it has not answered for {limit:g} s")
        elif failures:
            self._turn_off(as_short_text(failures[0]))
        else:
            return results[0]
        return None

    def _join(self, thread: threading.Thread, limit: float) -> None:
        """Wait until a thread ends, or has sent no row for `limit` seconds."""
        sent = -1
        while thread.is_alive() and sent != self._position():
            sent = self._position()
            thread.join(limit)

    def _position(self) -> int:
        return 0 if self.copy is None else self.copy.first

    def _turn_off(self, why: str) -> None:
        self.copy = None
        print(
            f"the tracker is off for this run ({why}); the run continues, and `pods sync` can send "
            "its rows later"
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
