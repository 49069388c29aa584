"""Jobs, and the interface between a sweep and the machine or cluster that executes them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pods.config.schema import Config
from pods.runs.files import remove
from pods.runs.freeze import freeze, has_ended
from pods.runs.history import missing_evaluations
from pods.runs.status import state_of
from pods.runs.store import RunStore

POLL_SECONDS = 0.05  # time between two looks at whether a process has ended
REFRESH_SECONDS = 1.0  # time between two looks at heartbeats of jobs, or at a cluster's queue


@dataclass(frozen=True)
class Job:
    """One run to be executed in a process of its own."""

    store: RunStore
    config: Config  # the run's frozen config
    varied: str = ""  # values of the keys that vary in its sweep, besides arm, n, m and seed

    @property
    def name(self) -> str:
        """Arm, n, m, what else is varied, and seed, padded for a table."""
        label = self.config.nm.label().replace("→", "->")
        text = f"{self.config.arm_name()} {label}"
        if self.varied:
            text += f" {self.varied}"
        return f"{text:<24} seed {self.config.seed}"


def prepare(config: Config) -> RunStore:
    """Freeze a run; with `retry=all`, first remove it if it is done and no process holds it."""
    store = freeze(config)

    if config.retry == "all" and state_of(store) == "done":
        with suppress(BlockingIOError), store.lock():
            remove(store.folder)
        store = freeze(config)
    return store


def has_work_left(store: RunStore, config: Config) -> bool:
    """Return whether a run is to be executed with a config, whose budget may be larger than before.

    It is if it is not done, or if one of its evaluations is missing. A failed run is executed if it
    is to be retried.
    """
    state = store.status()["state"]
    if state == "done":
        return not has_ended(store, config.budget) or bool(missing_evaluations(store))
    return state != "failed" or config.retry != "none"


def forget_end(store: RunStore) -> None:
    """Forget how the last attempt ended, so that the next one's end is not taken for it."""
    status = store.status()
    is_recorded = status.get("error") is not None or status.get("exit_code") is not None
    if is_recorded and not store.is_held():
        store.set_status(error=None, exit_code=None)


@dataclass(frozen=True)
class Backend:
    """A machine or a cluster that executes jobs."""

    at_once: int  # largest number of jobs that run at the same time
    run: Callable[[Sequence[Job]], bool]
    """Executes jobs that have work left, except those that another process already runs.

    It returns when all have ended, or True if a signal has asked this process to stop.
    """
    close: Callable[[], None] = lambda: None
    """Frees what the backend holds once all jobs have ended."""
