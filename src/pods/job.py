"""One run as a process: threads, lock, signals, watchdog, status and exit code.

    python -m pods.job RUN_FOLDER [ATTEMPT_FOLDER]       executes the folder's frozen config

Exit codes: 0 done, 1 failed, 75 stopped or out of luck (asked to, locked, disk full, engine hung or
broken down): run the same command again. Where a run is spread over several processes this one
starts them and waits (`torchrun.py`), and each of them is one that torchrun has started: the first
leads, the others follow (`crew.py`).
"""

import errno
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

from pods import torchrun
from pods.config import Config
from pods.console import forgiving_console
from pods.machine import end_with_parent, set_threads
from pods.rollouts.engine import EngineFailed
from pods.runs.attempts import environments, mark, new_attempt
from pods.runs.environment import environment, working_tree_changes
from pods.runs.files import replace
from pods.runs.frozen import Changed, check_unchanged
from pods.runs.history import clocks
from pods.runs.meter import Meter
from pods.runs.store import RunStore
from pods.runs.tracking import NoTracker, Tracker, open_tracker
from pods.stop import GO_ON, Gone, Preempted, Stop, stop_on_signals
from pods.watchdog import watchdog

DONE, FAILED, AGAIN = 0, 1, 75
DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ESTALE)


def to_do(store: RunStore, retry: str) -> bool:
    """Say whether the run has work left: not if it is done, or failed and not to be retried."""
    state = store.status()["state"]
    return state not in ("done", "failed") or (state == "failed" and retry == "failed")


def execute(
    folder: Path, attempt: Path | None = None, now: Callable[[], float] = time.perf_counter
) -> int:
    """Run the folder's frozen config to its end; never raises for what goes wrong in the run.

    Args:
        folder: of the run.
        attempt: where this attempt's environment goes; None: a new one.
        now: the training clock's source of seconds.
    """
    store = RunStore(folder)
    if torchrun.rank() is None and torchrun.processes(store) > 1:
        return _several(store, attempt)
    with ExitStack() as held:
        held.enter_context(forgiving_console())
        try:
            held.enter_context(store.lock())
        except BlockingIOError:
            print(f"{folder}: another process runs this; nothing was changed", file=sys.stderr)
            return AGAIN
        stop = held.enter_context(stop_on_signals())
        try:
            config = torchrun.at_hand(store.config())
            attempt = _begin(store, config, attempt)
        except (ValueError, OSError, ImportError) as problem:
            print(f"error: {problem}", file=sys.stderr)
            _tell(store, error=_in_short(problem))
            return AGAIN if is_disk_trouble(problem) else FAILED
        hung = partial(_hung, store)
        with watchdog(stop, config.watchdog_seconds, store.set_status, hung, AGAIN):
            code, tracker = _run(config, store, stop, attempt, now)
        tracker.finish(FAILED if code == FAILED else DONE)
        return code


def _several(store: RunStore, attempt: Path | None) -> int:
    """Have torchrun start the run's processes; return the exit code."""
    try:
        return torchrun.run(store, attempt or new_attempt(store), FAILED, AGAIN)
    except OSError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return AGAIN if is_disk_trouble(problem) else FAILED


def _begin(store: RunStore, config: Config, attempt: Path | None) -> Path:
    """See that the run is what it was, and write down what it goes on with."""
    changes, before, now = check_unchanged(store, config), environments(store), environment()
    now["processes"] = torchrun.size()
    if before and before[-1]["commit"] != now["commit"]:
        print(f"note: begun with commit {before[-1]['commit']}, goes on with {now['commit']}")
    attempt = attempt or new_attempt(store)
    mark(store, changes)
    set_threads(config.hardware.threads)
    replace(attempt / "environment.json", json.dumps(now, indent=1), durable=True)
    replace(attempt / "git.diff", working_tree_changes())
    store.set_status(state="running", pid=os.getpid(), host=socket.gethostname(), error=None)
    return attempt


def _run(
    config: Config, store: RunStore, stop: Stop, attempt: Path, now: Callable[[], float]
) -> tuple[int, Tracker]:
    """Run, and write down how it ended; return the exit code and the mirror, to be closed."""
    tracker: Tracker = NoTracker()
    meter, started = Meter(), False

    def report() -> None:
        replace(attempt / "phases.json", meter.text())

    try:
        with meter.phase("start"), stop.at_once():  # nothing is half-written while things load
            from pods.assemble import build
            from pods.policy.team import ALONE, join

            tracker = open_tracker(config, store.folder)
            team = join(config.hardware.device) if torchrun.rank() is not None else ALONE
            experiment = build(config, store, tracker, stop, now, meter, report, team)
        with meter.phase("rehearsal"), stop.at_once():
            from pods.rehearsal import rehearse

            prompts = [*experiment.loop.prompts, *experiment.questions]
            rehearse(experiment.crew.worker, prompts)
        started = True
        with closing(experiment.progress), experiment.crew.at_work():
            experiment.run()
        state, code, error = "done", DONE, None
    except Preempted:
        state, code, error = "preempted", AGAIN, None
        print("stopped on request; the same command goes on from here", file=sys.stderr)
    except Exception as problem:
        state, code, error = judge(problem, started, store)
    _tell(store, state=state, error=error)
    with suppress(OSError):
        report()
    return code, tracker


def judge(problem: Exception, started: bool, store: RunStore) -> tuple[str, int, str]:
    """Whose an error is: the user's to mend, the machine's, or the run's own; say it."""
    error = _in_short(problem)
    if not started and isinstance(problem, ValueError):
        print(f"error: {problem}", file=sys.stderr)
        return "preempted" if clocks(store) else "pending", FAILED, error
    if isinstance(problem, Gone):
        print(f"error: {problem}; {GO_ON}", file=sys.stderr)
        return "preempted", AGAIN, error
    if started and isinstance(problem, EngineFailed):
        traceback.print_exception(problem)
        print(GO_ON, file=sys.stderr)
        return "preempted", AGAIN, error
    if is_disk_trouble(problem):
        print(f"error: {error}\nonce that is mended, the same command goes on", file=sys.stderr)
        return "preempted", AGAIN, error
    traceback.print_exception(problem)
    return "failed", FAILED, error


def is_disk_trouble(problem: Exception) -> bool:
    """Say whether the disk is full or fails: nothing of ours, and the same command goes on."""
    return isinstance(problem, OSError) and problem.errno in DISK_TROUBLE


def _tell(store: RunStore, **changes: object) -> None:
    """Write status, if the disk lets us; else the lock tells that the run has ended."""
    try:
        store.set_status(**changes)
    except OSError as problem:
        print(f"error: {problem}", file=sys.stderr)


def _hung(store: RunStore, why: str) -> None:
    if store.status()["state"] == "running":  # not in the last moments of a run that is done
        store.set_status(state="preempted", error=why)


def _in_short(problem: BaseException) -> str:
    if isinstance(problem, Changed):
        return f"changed since the run began: {'; '.join(problem.changes)}"
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def main(folder: Path, attempt: Path | None = None) -> int:
    """Be a job's process, or one of those that torchrun has started for it."""
    rank = torchrun.rank()
    if rank:
        from pods.follower import follow

        return follow(RunStore(folder), attempt)
    if attempt is not None:
        end_with_parent(signal.SIGTERM if rank is None else signal.SIGKILL)  # it may hang
    if rank is None or attempt is None:
        return execute(folder, attempt)
    torchrun.note(attempt, None)
    code = execute(folder, attempt)
    torchrun.note(attempt, code)
    return DONE  # of this process: what is more makes torchrun end the others in the middle


if __name__ == "__main__":
    code = main(*map(Path, sys.argv[1:]))
    if torchrun.rank() is not None:
        torchrun.leave(code)
    sys.exit(code)
