"""The main program of a job's process: execute one run from its frozen config.

    python -m pods.launch.job RUN_FOLDER [ATTEMPT_FOLDER] [--evaluate STEP:[SET]...]

With `--evaluate` it completes the evaluations of these checkpoints instead (`evaluation.py`), on
the main test set or a further one, whose data may be in `--sets-path FOLDER`.

Exit codes: 0 done; 1 failed; 75 temporary failure (interrupted, locked, disk full, engine hung or
crashed): the same command resumes the run. If a run uses several processes, this one starts them
and waits (`local_processes.py`); rank 0 executes this module and the others `rank_main.py`.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.schema import Config
from pods.launch import evaluation, local_processes
from pods.launch.failures import classify, short_text
from pods.runs import files
from pods.runs.attempts import (
    environment,
    environments,
    new_attempt,
    record_changes,
    working_tree_changes,
)
from pods.runs.evaluations import Point
from pods.runs.freeze import check_unchanged
from pods.runs.lock import RunLock
from pods.runs.reading import read_object
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker, open_tracker
from pods.system.console import lossy_console
from pods.system.errors import (
    AGAIN,
    DONE,
    FAILED,
    FIX_AND_RESUME,
    as_text,
    is_machine_error,
    print_error,
)
from pods.system.load import CpuTimes, cpu_times, machine_load
from pods.system.machine import end_with_parent, set_threads
from pods.system.signals import Preempted, Stop, stop_on_signals
from pods.system.watchdog import watchdog
from pods.training.clock import Meter

if TYPE_CHECKING:
    from pods.training.trainer import Trainer


def has_work_left(store: RunStore, retry: str) -> bool:
    """Return whether a run is neither done nor failed; `failed` and `all` retry failed ones."""
    state = store.status()["state"]
    return state not in ("done", "failed") or (state == "failed" and retry in ("failed", "all"))


def execute(
    folder: Path,
    attempt: Path | None = None,
    now: Callable[[], float] = time.perf_counter,
    evaluate: Sequence[Point] = (),
    sets_path: str | None = None,
) -> int:
    """Execute a run's frozen config, and return the exit code; errors of the run are not raised.

    Args:
        folder: of the run.
        attempt: folder for this attempt's environment; None: make one.
        now: returns the training clock's seconds.
        evaluate: evaluations to complete instead of training; needs `attempt`.
        sets_path: folder with the data of further test sets to evaluate on.
    """
    execution = _Execution(RunStore(folder), attempt, now, evaluate, sets_path)
    several = local_processes.rank() is None and local_processes.count(execution.store) > 1
    return execution.start_processes() if several and not evaluate else execution.run()


@dataclass
class _Execution:
    """One attempt at a run, or one evaluation of its checkpoints, by this process."""

    store: RunStore
    attempt: Path | None
    now: Callable[[], float]
    evaluate: Sequence[Point]
    sets_path: str | None
    machine: str | None = None
    """In an evaluation: name of this machine if the run never ran on one like it."""
    tracker: Tracker = field(default_factory=Tracker)
    cpu_start: CpuTimes = field(default_factory=cpu_times)
    """The machine's CPU seconds when this process began."""

    def start_processes(self) -> int:
        """Start the processes of a run that uses several, and return the exit code."""
        try:
            attempt = self.attempt or new_attempt(self.store)
            return local_processes.run(self.store, attempt, FAILED, AGAIN)
        except OSError as error:
            return self.not_started(error)

    def run(self) -> int:
        """Hold the run's lock, execute the run in this process, and return the exit code."""
        with ExitStack() as stack:
            stack.enter_context(lossy_console())
            try:
                lock = stack.enter_context(self.store.lock())
                if self.evaluate and state_of(self.store, ours=True) == "running":
                    raise BlockingIOError  # a process on another machine runs it
            except BlockingIOError:
                print(
                    f"{self.store.folder}: another process runs this; nothing was changed",
                    file=sys.stderr,
                )
                if self.evaluate:
                    self.record(None, "held by another process; left alone", AGAIN)
                return AGAIN
            except OSError as error:
                return self.not_started(error)
            stop = stack.enter_context(stop_on_signals())
            try:
                config = self.begin()
            except (ValueError, OSError, ImportError) as error:
                return self.not_started(error)
            limit = config.watchdog_seconds
            with watchdog(stop, limit, self.heartbeat, self.record_hang, AGAIN):
                code = self.work(config, lock, stop)
            self.tracker.finish(FAILED if code == FAILED else DONE)
            return code

    def begin(self) -> Config:
        """Check that the run is what it was, and write down what this process runs on.

        Raises:
            Changed: the config, data, code or libraries are not those that the run began with.
            OSError: the disk refuses to be written.
        """
        config = self.store.config()
        config = self.evaluated(config) if self.evaluate else local_processes.as_started(config)
        changes, before = check_unchanged(self.store, config), environments(self.store)
        current = environment()
        if not self.evaluate:
            current["processes"] = local_processes.world_size()
            current["clock"] = config.budget.clock_text()
            commit = before[-1].get("commit") if before else current["commit"]
            if commit != current["commit"]:
                print(f"note: begun with commit {commit}, resumed with {current['commit']}")
        self.attempt = self.attempt or new_attempt(self.store)
        record_changes(self.store, changes)
        set_threads(config.hardware.threads)
        text = json.dumps(current, indent=1)
        files.replace(self.attempt / "environment.json", text, durable=True)
        files.replace(self.attempt / "git.diff", working_tree_changes())
        self.record_load()
        if self.evaluate:
            if not all(point.test_set for point in self.evaluate):  # figures are of the main one
                self.machine = evaluation.note_new_machine(config, before, current, self.attempt)
        else:
            self.store.set_status(
                state="running",
                pid=os.getpid(),
                host=socket.gethostname(),
                error=None,
                exit_code=None,
            )
        return config

    def evaluated(self, config: Config) -> Config:
        """Return the config that completes evaluations: one process, and only their test sets."""
        sets = sorted({point.test_set for point in self.evaluate} - {""})
        evaluation = replace(config.evaluation, sets=sets, sets_path=self.sets_path)
        return replace(config.on(1), evaluation=evaluation)

    def work(self, config: Config, lock: RunLock, stop: Stop) -> int:
        """Train or evaluate, record how that ended, and return the exit code."""
        meter, started, code = Meter(), False, DONE
        try:
            with (
                meter.phase("start"),
                stop.while_loading(),
            ):  # nothing is half-written while this loads
                trainer = self.build(config, lock, stop, meter)
                self.record_engine(trainer.loop.engine.facts)
            if not self.evaluate:
                with meter.phase("rehearsal"), stop.while_loading():
                    from pods.training.preflight import preflight

                    sets = trainer.test_sets().values()
                    asked = [prompt for test_set in sets for prompt in test_set.questions]
                    preflight(trainer.workers.worker, [*trainer.loop.prompts, *asked])
            started = True
            with closing(trainer.progress), trainer.workers.release_on_exit():
                if not self.evaluate:
                    trainer.run()
                elif not evaluation.evaluate_checkpoints(
                    trainer, self.evaluate, self.folder, self.machine
                ):
                    code = FAILED
            state, error = "done", None
        except Preempted:
            state, code, error = "preempted", AGAIN, None
            print("stopped on request; the same command resumes", file=sys.stderr)
        except (Exception, SystemExit) as problem:  # a user's rule may call sys.exit
            state, code, error = classify(problem, started, self.store)
        if self.store.folder.is_dir():  # otherwise somebody removed it
            self.record(state, error, code)
        with suppress(OSError):
            self.report(meter)
            self.record_load(cpu_times())
        return code

    def build(self, config: Config, lock: RunLock, stop: Stop, meter: Meter) -> "Trainer":
        """Load policy, engine and data, and open the tracker."""
        from pods.policy.process_group import SINGLE_PROCESS, join
        from pods.training.build import build_trainer

        if not self.evaluate:
            self.tracker = open_tracker(config, self.store.folder)
        alone = local_processes.rank() is None
        group = SINGLE_PROCESS if alone else join(config.hardware.device)
        report = partial(self.report, meter)
        return build_trainer(
            config, self.store, lock, self.tracker, stop, self.now, meter, report, group
        )

    def report(self, meter: Meter) -> None:
        """Write seconds and memory of each phase into a training attempt's folder."""
        if not self.evaluate:
            files.replace(self.folder / "phases.json", meter.text())

    def record_engine(self, facts: Mapping[str, Any]) -> None:
        """Add what a library has chosen for the engine to a training attempt's environment."""
        if facts and not self.evaluate:
            path = self.folder / "environment.json"
            text = json.dumps({**read_object(path, {}), "engine": facts}, indent=1)
            files.replace(path, text, durable=True)

    def record_load(self, end: CpuTimes | None = None) -> None:
        """Write how busy the machine is into a training attempt's folder, at its start and end."""
        if not self.evaluate:
            text = json.dumps(machine_load(self.cpu_start, end), indent=1)
            files.replace(self.folder / "load.json", text)

    @property
    def folder(self) -> Path:
        """Folder of the attempt, which `begin` has made if need be."""
        assert self.attempt is not None
        return self.attempt

    def record(self, state: str | None, error: str | None, exit_code: int) -> None:
        """Write down how the execution ended; state None leaves the run's state as it is."""
        if self.evaluate:
            evaluation.record_end(self.folder, error, exit_code)
            return
        changes = {"error": error, "exit_code": exit_code, **({"state": state} if state else {})}
        try:
            self.store.set_status(**changes)
        except OSError as problem:  # the released lock tells that the run has ended
            print_error(as_text(problem))

    def heartbeat(self) -> None:
        """Write the time into status.json, unless this is an evaluation."""
        if not self.evaluate:
            self.store.set_status()

    def record_hang(self, why: str) -> None:
        """Record that the watchdog ends this process, unless the run has just ended."""
        if self.evaluate or self.store.status()["state"] == "running":
            self.record("preempted", why, AGAIN)

    def not_started(self, error: Exception) -> int:
        """Report why the execution ends before it has begun, and return the exit code."""
        code = AGAIN if is_machine_error(error, self.store.folder) else FAILED
        print_error(as_text(error), FIX_AND_RESUME if code == AGAIN else "")
        self.record(None, short_text(error), code)
        return code


def main(
    folder: Path,
    attempt: Path | None = None,
    evaluate: Sequence[Point] = (),
    sets_path: str | None = None,
) -> int:
    """Be the process of a job, or one of the processes of a run that uses several."""
    rank = local_processes.rank()
    if rank:
        from pods.launch import rank_main

        return rank_main.main(RunStore(folder), attempt)
    if attempt is not None:  # several processes may hang where SIGTERM is not heard
        end_with_parent(signal.SIGTERM if rank is None else signal.SIGKILL)
    if rank is None or attempt is None:
        return execute(folder, attempt, evaluate=evaluate, sets_path=sets_path)
    local_processes.record_main(attempt, None)
    code = execute(folder, attempt)
    local_processes.record_main(attempt, code)
    return DONE  # another code would make the launcher end the other ranks in their work


def _point(text: str) -> Point:
    """Parse `STEP:` or `STEP:SET`."""
    step, _, test_set = text.partition(":")
    return Point(int(step), test_set)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m pods.launch.job")
    parser.add_argument("folder", type=Path)
    parser.add_argument("attempt", type=Path, nargs="?")
    parser.add_argument("--evaluate", type=_point, nargs="+", default=(), metavar="STEP:[SET]")
    parser.add_argument("--sets-path", metavar="FOLDER")
    code = main(**vars(parser.parse_args()))
    if local_processes.rank() is not None:
        local_processes.exit_immediately(code)
    sys.exit(code)
