"""The main program of a job's process: execute one run from its frozen config.

    python -m pods.launch.job RUN_FOLDER [ATTEMPT_FOLDER [MEETING_PLACE]]

It ends with an exit code of `system.errors`. If a run uses several processes, this one starts them
and waits (`several.py`); each executes this module, and they meet at a file or, without one, at the
address that torchrun sets.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.schema import Config
from pods.launch.failures import classify
from pods.runs import attempts, files
from pods.runs.freeze import check_unchanged
from pods.runs.history import ended_at
from pods.runs.lock import RunLock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, as_text, print_error
from pods.system.machine import end_process, end_with_parent, rank, set_threads
from pods.system.signals import PeerLost, Preempted, Stop, stop_on_signals
from pods.system.watchdog import watchdog
from pods.training.clock import TrainClock

if TYPE_CHECKING:
    from pods.policy.joined import JoinedProcesses
    from pods.training.trainer import Trainer


def execute(
    folder: Path,
    attempt: Path | None = None,
    place: Path | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> int:
    """Execute a run's frozen config, and return the exit code; errors of the run are not raised.

    The folder `attempt` is for what this process leaves, `place` is where several processes meet,
    and `now` returns the training clock's seconds.
    """
    store = RunStore(folder)
    execution = _Execution(store, attempt, place, TrainClock(now))
    if rank() is None and _processes(store) > 1:
        from pods.launch import several

        try:
            return several.start(store, execution.folder)
        except OSError as error:
            return execution.not_started(error)
    return execution.run()


def _processes(store: RunStore) -> int:
    """Return how many processes a run has; 1 if its config is damaged, which the run reports."""
    try:
        return store.config().hardware.processes
    except ValueError:
        return 1


@dataclass
class _Execution:
    """One attempt at a run, by this process."""

    store: RunStore
    attempt: Path | None
    place: Path | None
    clock: TrainClock
    group: "JoinedProcesses | None" = None  # if this process is rank 0 of several
    tracker: Tracker = field(default_factory=Tracker)
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self) -> int:
        """Hold the run's lock, execute the run in this process, and return the exit code."""
        with ExitStack() as stack, lossy_console():
            try:
                lock = stack.enter_context(self.store.lock())
                stop = stack.enter_context(stop_on_signals())
                config = self.begin()
            except BlockingIOError:
                what = "another process runs this; nothing was changed"
                print(f"{self.store.folder}: {what}", file=sys.stderr)
                return AGAIN
            except (ValueError, OSError, ImportError) as error:
                return self.not_started(error)

            limit = config.watchdog_seconds
            with watchdog(stop, limit, self.store.set_status, self.record_hang):
                code = self.work(config, lock, stop)
            self.tracker.finish()
            return code

    def begin(self) -> Config:
        """Check that the run is what it was, and write down what this process runs on."""
        config = self.store.config()
        if rank() is not None:
            from pods.launch.several import as_started

            config = as_started(config)
        attempts.record_changes(self.store, check_unchanged(self.store, config))
        set_threads(config.hardware.threads)

        facts = attempts.environment()
        facts["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        facts["processes"] = config.hardware.processes
        facts["only_evaluates"] = ended_at(self.store, config) is not None
        self.note(**facts)
        files.replace(self.folder / "git.diff", attempts.git("diff", "HEAD"))

        self.store.set_status(
            state="running",
            error=None,
            exit_code=None,
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        return config

    def work(self, config: Config, lock: RunLock, stop: Stop) -> int:
        """Load and train, record how it ended, and return the exit code."""
        started = False
        code = DONE
        error: str | None = None
        try:
            with self.clock.meter.phase("start"), stop.while_loading():  # nothing is half-written
                trainer = self.build(config, lock, stop)
            with self.clock.meter.phase("preflight"), stop.while_loading():
                from pods.training.preflight import preflight

                preflight(trainer.worker, trainer.loop.prompts, trainer.questions)
                facts = trainer.worker.engine.facts
                if facts:  # what a library has chosen for the engine
                    self.note(engine=facts)

            started = True
            with closing(trainer.progress):
                trainer.run()
            state = "done"
        except Preempted:
            state, code, error = self.stopped()
        except (Exception, SystemExit) as problem:  # a user's rule may call sys.exit
            state, code, error = self.classify(problem, started)

        if self.store.folder.is_dir():  # otherwise somebody removed it
            self.record(state=state, error=error, exit_code=code)
        with suppress(OSError):
            self.report()
        return code

    def stopped(self) -> tuple[str, int, str | None]:
        """Return the run's state, the exit code and an error, which is printed, after a stop.

        The launcher also asks this process to stop if another one of the run has failed.
        """
        note = None if self.group is None else self.group.read_note()
        if note is not None:
            print_error(note[2])
            return note
        print("stopped on request; the same command resumes", file=sys.stderr)
        return "preempted", AGAIN, None

    def classify(self, problem: BaseException, started: bool) -> tuple[str, int, str]:
        """Return the run's state, the exit code and the error as text, which is printed.

        If this process has lost another one, what that one said before it ended is the error.
        """
        if self.group is None or not self.group.lost_another(problem):
            return classify(problem, started, self.store)
        note = self.group.read_note()
        if note is None:
            return classify(PeerLost("another process of the run has died"), started, self.store)
        print_error(note[2])
        return note

    def build(self, config: Config, lock: RunLock, stop: Stop) -> "Trainer":
        """Load what the run needs; `lock` is the run's, and `stop` can end it."""
        from pods.policy.process_group import SINGLE_PROCESS
        from pods.training.build import build_trainer

        self.tracker = Tracker(config, self.store)
        if rank() is not None:
            from pods.policy.joined import join

            self.group = join(config.hardware.device, stop, self.place)
        return build_trainer(
            config,
            self.store,
            lock,
            tracker=self.tracker,
            stop=stop,
            clock=self.clock,
            report=self.report,
            process_group=self.group or SINGLE_PROCESS,
        )

    def report(self) -> None:
        """Write seconds and memory of each phase into the attempt's folder."""
        files.replace(self.folder / "phases.json", self.clock.meter.text())

    def note(self, **facts: Any) -> None:
        """Add to what the attempt's folder says about the machine and the software."""
        self.facts |= facts
        files.write_json(self.folder / "environment.json", self.facts)

    @cached_property
    def folder(self) -> Path:
        """Folder of the attempt; a new one, if this process was not given any."""
        return self.attempt or attempts.new_attempt(self.store)

    def record(self, **changes: Any) -> None:
        """Change the run's status, if its disk allows that."""
        try:
            self.store.set_status(**changes)
        except OSError as problem:  # the released lock tells that the run has ended
            print_error(as_text(problem))

    def record_hang(self, why: str) -> None:
        """Record that the watchdog ends this process, unless the run has just ended."""
        if self.store.status()["state"] == "running":
            self.record(state="preempted", error=why, exit_code=AGAIN)

    def not_started(self, error: Exception) -> int:
        """Report why the execution ends before it has begun, and return the exit code."""
        _, code, text = classify(error, False, self.store)
        self.record(error=text, exit_code=code)  # the run's state stays
        return code


def main(arguments: Sequence[str]) -> int:
    """Be the process of a job, or one of the processes of a run that uses several."""
    folder = Path(arguments[0])
    attempt = Path(arguments[1]) if len(arguments) > 1 else None
    place = Path(arguments[2]) if len(arguments) > 2 else None
    if rank() is not None:  # it may hang where SIGTERM is not heard
        end_with_parent(signal.SIGKILL)
    elif attempt is not None:
        end_with_parent(signal.SIGTERM)

    if rank():
        from pods.launch.several import take_part

        return take_part(RunStore(folder), place)
    return execute(folder, attempt, place)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
