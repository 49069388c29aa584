"""One run as a process: threads, lock, signals, watchdog, status and exit code.

    python -m pods.job RUN_FOLDER [ATTEMPT_FOLDER]       executes the folder's frozen config

Exit codes: 0 done, 1 failed, 75 stopped or out of luck (asked to, locked, disk full, engine hung or
broken down): run the same command again. Where a run is spread over several processes this one
starts them and waits (`torchrun.py`), and each of them is one that torchrun has started: the first
leads, the others follow (`crew.py`).
"""

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
from pods.console import forgiving_console, shown
from pods.machine import end_with_parent, set_threads
from pods.rollouts.engine import EngineFailed
from pods.runs.attempts import environments, mark, new_attempt
from pods.runs.environment import environment, working_tree_changes
from pods.runs.files import Altered, replace
from pods.runs.frozen import Changed, check_unchanged
from pods.runs.history import clocks
from pods.runs.lock import Held
from pods.runs.meter import Meter
from pods.runs.store import RunStore
from pods.runs.tracking import NoTracker, Tracker, open_tracker
from pods.stop import GO_ON, Gone, Preempted, Stop, stop_on_signals
from pods.trouble import AGAIN, DONE, FAILED, MENDED, in_short, in_words, is_machine_trouble
from pods.watchdog import watchdog


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
            lock = held.enter_context(store.lock())
        except BlockingIOError:
            print(f"{folder}: another process runs this; nothing was changed", file=sys.stderr)
            return AGAIN
        except OSError as problem:
            return _not_begun(problem, store)
        stop = held.enter_context(stop_on_signals())
        try:
            config = torchrun.at_hand(store.config())
            attempt = _begin(store, config, attempt)
        except (ValueError, OSError, ImportError) as problem:
            return _not_begun(problem, store)
        hung = partial(_hung, store)
        with watchdog(stop, config.watchdog_seconds, store.set_status, hung, AGAIN):
            code, tracker = _run(config, store, lock, stop, attempt, now)
        tracker.finish(FAILED if code == FAILED else DONE)
        return code


def _several(store: RunStore, attempt: Path | None) -> int:
    """Have torchrun start the run's processes; return the exit code."""
    try:
        return torchrun.run(store, attempt or new_attempt(store), FAILED, AGAIN)
    except OSError as problem:
        return _not_begun(problem, store)


def _not_begun(problem: Exception, store: RunStore) -> int:
    """Say why an attempt ends before it has begun; return the exit code."""
    code = AGAIN if is_machine_trouble(problem, store.folder) else FAILED
    print(f"error: {shown(in_words(problem))}", file=sys.stderr)
    if code == AGAIN:
        print(MENDED, file=sys.stderr)
    _tell(store, error=_in_short(problem), exit_code=code)
    return code


def _begin(store: RunStore, config: Config, attempt: Path | None) -> Path:
    """See that the run is what it was, and write down what it goes on with."""
    changes, before, now = check_unchanged(store, config), environments(store), environment()
    now["processes"] = torchrun.size()
    commit = before[-1].get("commit") if before else now["commit"]
    if commit != now["commit"]:
        print(f"note: begun with commit {commit}, goes on with {now['commit']}")
    attempt = attempt or new_attempt(store)
    mark(store, changes)
    set_threads(config.hardware.threads)
    replace(attempt / "environment.json", json.dumps(now, indent=1), durable=True)
    replace(attempt / "git.diff", working_tree_changes())
    store.set_status(state="running", pid=os.getpid(), host=socket.gethostname(), error=None,
                     exit_code=None)  # fmt: skip
    return attempt


def _run(
    config: Config,
    store: RunStore,
    lock: Held,
    stop: Stop,
    attempt: Path,
    now: Callable[[], float],
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
            experiment = build(config, store, lock, tracker, stop, now, meter, report, team)
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
    except (Exception, SystemExit) as problem:  # a rule of the user's may call sys.exit
        state, code, error = judge(problem, started, store)
    if store.folder.is_dir():  # else it was removed
        _tell(store, state=state, error=error, exit_code=code)
    with suppress(OSError):
        report()
    return code, tracker


def judge(problem: BaseException, started: bool, store: RunStore) -> tuple[str, int, str]:
    """Whose an error is: the user's to mend, the machine's, or the run's own; say it."""
    error = _in_short(problem)
    if not started and isinstance(problem, ValueError):
        print(f"error: {shown(str(problem))}", file=sys.stderr)
        return "preempted" if clocks(store) else "pending", FAILED, error
    if isinstance(problem, Altered) and not problem.mend:
        print(f"error: {shown(str(problem))}; only a new run makes that again: `pods clean "
              "--state failed` removes this one", file=sys.stderr)  # fmt: skip
        return "failed", FAILED, error
    if not store.folder.is_dir() and not isinstance(problem, Altered):
        problem = Altered(f"{store.folder} was removed while the run was going on")
    if isinstance(problem, Gone | Altered):
        print(f"error: {shown(str(problem))}; {GO_ON}", file=sys.stderr)
        return "preempted", AGAIN, error
    if started and isinstance(problem, EngineFailed):
        _print_trace(problem)
        print(GO_ON, file=sys.stderr)
        return "preempted", AGAIN, error
    if is_machine_trouble(problem, store.folder):
        print(f"error: {shown(error)}\n{MENDED}", file=sys.stderr)
        return "preempted", AGAIN, error
    _print_trace(problem)
    return "failed", FAILED, error


def _print_trace(problem: BaseException) -> None:
    """Print where an error of the run came from; what it says may be anybody's."""
    print(shown("".join(traceback.format_exception(problem))), file=sys.stderr, end="")


def _tell(store: RunStore, **changes: object) -> None:
    """Write status, if the disk lets us; else the lock tells that the run has ended."""
    try:
        store.set_status(**changes)
    except OSError as problem:
        print(f"error: {shown(in_words(problem))}", file=sys.stderr)


def _hung(store: RunStore, why: str) -> None:
    if store.status()["state"] == "running":  # not in the last moments of a run that is done
        store.set_status(state="preempted", error=why, exit_code=AGAIN)


def _in_short(problem: BaseException) -> str:
    if isinstance(problem, Changed):
        return f"changed since the run began: {'; '.join(problem.changes)}"
    return in_short(problem)


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
