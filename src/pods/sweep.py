"""Many runs, wherever they run: frozen first, then left to a place, and a figure at the end.

Jobs are frozen before the first one starts, run seed by seed so that arms stay balanced if the
sweep is stopped, and cannot take each other down.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pods import job
from pods.config import Config
from pods.console import forgiving_console, shown
from pods.launch.place import Job, Place
from pods.process import job_name
from pods.runs.frozen import freeze
from pods.runs.history import clocks
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import stop_on_signals
from pods.trouble import AGAIN, FAILED, MENDED, in_words, is_machine_trouble

LAST_LINES = 5
TAIL_BYTES = 16 * 1024
POLL_SECONDS = 0.5


class SweepFailed(Exception):
    """Some jobs did not end well; the message lists each of them."""

    def __init__(self, message: str, code: int) -> None:
        """`code` is the exit code for the whole sweep."""
        super().__init__(message)
        self.code = code


@forgiving_console()
def run(configs: Sequence[Config], place: Place) -> None:
    """Freeze all jobs, run those with work left, print what happened, draw the figure.

    Raises:
        SweepFailed: some jobs failed or were stopped; the others are done.
    """
    in_order = sorted(configs, key=lambda config: config.seed)  # stable: seed-major
    frozen = {store.folder: (store, c) for c in in_order if (store := freeze(c))}
    jobs = list(frozen.values())
    states = Counter(state_of(store) for store, _ in jobs)
    at_once = min(place.at_once, len(jobs))
    print(f"{len(jobs)} jobs, {states['done']} done before, {at_once} at a time", flush=True)
    print(f"memory: {place.memory}", flush=True)
    if states["failed"] and any(c.retry != "failed" for _, c in jobs):
        print(f"{states['failed']} failed before; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} running already")
    stopped = _run_all(jobs, place)
    not_done = [(s, c) for s, c in jobs if s.status()["state"] != "done"]
    print(f"{len(jobs) - len(not_done)} of {len(jobs)} jobs done")
    if not_done:
        at_fault = [(s, c) for s, c in not_done if _is_at_fault(s)]
        told = [_account(store, config) for store, config in (at_fault if stopped else not_done)]
        told += [_stopped(jobs)] if stopped else []
        raise SweepFailed("\n".join(told), FAILED if at_fault and not stopped else AGAIN)
    _draw(configs[0], [store.folder for store, _ in jobs])


def _run_all(jobs: Sequence[Job], place: Place) -> bool:
    """Run what there is to do, and what others run and drop; return whether asked to stop.

    A job is taken over once: what dies in this sweep's hands may die in any.
    """
    ready, elsewhere = [(s, c) for s, c in jobs if job.to_do(s, c.retry)], list[_Elsewhere]()
    while True:
        outcome = place.run(ready)
        elsewhere += [_Elsewhere(store, config) for store, config in outcome.elsewhere]
        if outcome.stopped or not elsewhere:
            return outcome.stopped
        print(f"{len(elsewhere)} jobs are run by other processes: waiting for them", flush=True)
        with stop_on_signals() as stop:
            while not stop.requested and all(one.gets_on() for one in elsewhere):
                time.sleep(POLL_SECONDS)
            if stop.requested:
                return True
        over = [one for one in elsewhere if not one.gets_on()]
        ready = [(one.store, one.config) for one in over
                 if not one.runs() and job.to_do(one.store, one.config.retry)]  # fmt: skip
        elsewhere = [one for one in elsewhere if one not in over]


@dataclass
class _Elsewhere:
    """A job that another process runs, as this sweep waits for it."""

    store: RunStore
    config: Config
    heartbeat: float = -1.0
    """As last seen; only whether it changes counts."""
    changed: float = 0.0
    """When it did, by this process's clock."""

    def runs(self) -> bool:
        """Whether some process runs it, or has not let go of it yet."""
        return self.store.is_held() or state_of(self.store) == "running"

    def gets_on(self) -> bool:
        """The same, with a sign of life as often as its watchdog wants one."""
        heartbeat = self.store.status().get("heartbeat", 0.0)
        if heartbeat != self.heartbeat:
            self.heartbeat, self.changed = heartbeat, time.monotonic()
        limit = self.config.watchdog_seconds
        return self.runs() and (limit is None or time.monotonic() - self.changed < limit)


def _is_at_fault(store: RunStore) -> bool:
    """Whether a job has failed by itself; all else that is not done, the machine has cut short."""
    status = store.status()
    return status["state"] == "failed" or status.get("exit_code") == FAILED


def _stopped(jobs: Sequence[Job]) -> str:
    """How a sweep stands that was asked to stop, in a line."""
    states = Counter(state_of(store) for store, _ in jobs)
    begun = sum(bool(clocks(store)) for store, _ in jobs
                if state_of(store) not in ("done", "failed", "running"))  # fmt: skip
    rest = len(jobs) - states["done"] - states["failed"] - states["running"] - begun
    parts = {"done": states["done"], "failed": states["failed"], "running": states["running"],
             "committed a checkpoint": begun, "not begun": rest}  # fmt: skip
    said = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    return f"stopped: of {len(jobs)} jobs {said}; the same command goes on"


def _account(store: RunStore, config: Config) -> str:
    """Why a job is not done, with the end of its newest console."""
    error = store.status().get("error")
    lines = [f"{state_of(store)}: {job_name(config)}: {error or 'not finished'}"]
    consoles = sorted((store.folder / "attempts").glob("*/console.log"))
    if error and consoles:
        lines += [f"    {line}" for line in _tail(consoles[-1])] + [f"    ({consoles[-1]})"]
    return shown("\n".join(lines))


def _tail(console: Path) -> list[str]:
    """The last lines of a console, which may be as long as a disk is large."""
    try:
        with console.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return [in_words(error)]


def _draw(config: Config, folders: Sequence[Path]) -> None:
    """Draw the figure.

    Raises:
        SweepFailed: the disk does not take it.
    """
    from pods.analysis.study import draw

    try:
        for line in draw(Path(config.runs_dir) / config.study, folders):
            print(line)
    except ValueError as error:
        print(f"no figure: {shown(str(error))}")
    except OSError as error:
        again = is_machine_trouble(error)
        said = f"no figure: {shown(in_words(error))}" + f"\n{MENDED}" * again
        raise SweepFailed(said, AGAIN if again else FAILED) from error
