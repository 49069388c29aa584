"""The main program of a job's process: execute one run from its frozen config.

    python -m pods.launch.job RUN_FOLDER [ATTEMPT_FOLDER]

It ends with an exit code of `system.errors`. If a run uses several processes, this one starts them
and waits (`local_processes.py`); rank 0 executes the run and the others its commands.
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
from pods.launch import local_processes
from pods.launch.failures import classify
from pods.runs import attempts, files
from pods.runs.freeze import check_unchanged
from pods.runs.history import ended_at
from pods.runs.lock import RunLock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, as_text, print_error
from pods.system.machine import end_process, end_with_parent, set_threads
from pods.system.signals import PeerLost, Preempted, Stop, stop_on_signals
from pods.system.watchdog import watchdog
from pods.training.clock import TrainClock

if TYPE_CHECKING:
    from pods.training.trainer import Trainer


def execute(
    folder: Path, attempt: Path | None = None, now: Callable[[], float] = time.perf_counter
) -> int:
    """Execute a run's frozen config, and return the exit code; errors of the run are not raised.

    The folder `attempt` is for what this process leaves, and `now` returns the training clock's
    seconds.
    """
    store = RunStore(folder)
    execution = _Execution(store, attempt, TrainClock(now))
    try:
        if local_processes.rank() is None and _processes(store) > 1:
            return local_processes.run(store, execution.folder)
    except (OSError, PeerLost) as error:
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
    clock: TrainClock
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
        config = local_processes.as_started(self.store.config())
        attempts.record_changes(self.store, check_unchanged(self.store, config))
        set_threads(config.hardware.threads)

        facts = attempts.environment()
        facts["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        facts["processes"] = config.hardware.processes
        facts["clock"] = config.budget.clock_text()
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
        try:
            with self.clock.meter.phase("start"), stop.while_loading():  # nothing is half-written
                trainer = self.build(config, lock, stop)
            with self.clock.meter.phase("preflight"), stop.while_loading():
                from pods.training.preflight import preflight

                preflight(trainer.workers.worker, [*trainer.loop.prompts, *trainer.questions])
                if trainer.workers.facts:  # what a library has chosen for the engine
                    self.note(engine=trainer.workers.facts)

            started = True
            with closing(trainer.progress), trainer.workers.release_on_exit():
                trainer.run()
            state, error = "done", None
        except Preempted:
            state, code, error = "preempted", AGAIN, None
            print("stopped on request; the same command resumes", file=sys.stderr)
        except (Exception, SystemExit) as problem:  # a user's rule may call sys.exit
            state, code, error = classify(problem, started, self.store)

        if self.store.folder.is_dir():  # otherwise somebody removed it
            self.record(state=state, error=error, exit_code=code)
        with suppress(OSError):
            self.report()
        return code

    def build(self, config: Config, lock: RunLock, stop: Stop) -> "Trainer":
        """Load what the run needs; `lock` is the run's, and `stop` can end it."""
        from pods.policy.process_group import SINGLE_PROCESS, join
        from pods.training.build import build_trainer

        self.tracker = Tracker(config, self.store)
        group = SINGLE_PROCESS
        if local_processes.rank() is not None:
            group = join(config.hardware.device)
        return build_trainer(
            config,
            self.store,
            lock,
            tracker=self.tracker,
            stop=stop,
            clock=self.clock,
            report=self.report,
            process_group=group,
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
    rank = local_processes.rank()
    if rank:
        return local_processes.obey(RunStore(folder), attempt)

    if attempt is not None:  # several processes may hang where SIGTERM is not heard
        end_with_parent(signal.SIGTERM if rank is None else signal.SIGKILL)
    return execute(folder, attempt)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
