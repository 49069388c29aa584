"""One run: consume the steps of the schedule, and write what happens to the run folder.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, continue. So a run that
dies anywhere resumes from its newest complete checkpoint and repeats nothing that was committed.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pods.config.schema import Config
from pods.runs import checkpoint, evaluations
from pods.runs.files import append, check_size, fsync, read_lines, read_or_empty, replace
from pods.runs.history import abandoned_paths, check_rollouts, evaluation_points, roll_back
from pods.runs.lock import RunLock
from pods.runs.records import Clock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.signals import Preempted
from pods.training.evaluate import already_done, evaluate
from pods.training.loop import TrainingLoop
from pods.training.metrics import metrics, rollout_rows
from pods.training.mismatch import MismatchMonitor
from pods.training.progress import Progress
from pods.training.resume import prune_checkpoints, restore_newest, write_state
from pods.training.schedule import steps
from pods.training.step import RunState, Step
from pods.training.workers import Worker, WorkerGroup
from pods.types import Prompt

NONFINITE_LIMIT = 3  # consecutive steps with NaN or infinity after which a run fails
HEARTBEAT_SECONDS = 2.0  # between writes of status.json, each of which can take milliseconds


@dataclass(kw_only=True)
class Trainer:
    """Drives one run and writes its folder."""

    config: Config
    store: RunStore
    lock: RunLock
    workers: WorkerGroup
    loop: TrainingLoop
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation; the loop's task holds exactly these."""
    state: RunState  # what the run knows after the last committed step
    tracker: Tracker
    progress: Progress
    report: Callable[[], None]  # writes seconds and memory by phase to the attempt's folder
    monitor: MismatchMonitor
    skipped: set[int] = field(default_factory=set)  # steps not applied, for NaN or infinity
    last_heartbeat: float = 0.0  # time at which a step was last written to status.json
    metrics_bytes: int = 0  # size of metrics.jsonl as this run has written it

    def run(self) -> None:
        """Train from the newest checkpoint, or from the start, to the end of the budget.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
            Altered: the folder does not hold what was written; the same command repairs that.
        """
        done = self.begin()
        before = self.loop.clock.train_seconds
        try:
            for step in steps(self.loop, done, self.state):
                self.record(step)
                done = step.number
                self.state = step.state
                if evaluations.due(self.config.checkpoint, done, before, step.train_seconds):
                    self.commit(done, evaluation=True)
                    self.evaluate(done)
                before = step.train_seconds
                self.workers.stop.check()
        except Preempted:
            if not self.store.checkpoint(done).exists():
                self.commit(done, evaluation=False)
            raise

        if done not in evaluation_points(self.store):
            self.commit(done, evaluation=True)
        self.evaluate(done)
        for point in evaluation_points(self.store):
            if not evaluations.is_complete(self.store, self.config, point):  # it was lost meanwhile
                self.evaluate_again(point)
        self.lock.check_held()
        check_size(self.store.metrics_path, self.metrics_bytes)
        evaluations.check_complete(self.store, self.config, done)

    def begin(self) -> int:
        """Restore the newest checkpoint, or commit that of step 0; return its step."""
        store = self.store
        for path in abandoned_paths(store):
            store.remove(path)

        restored = restore_newest(store, self.workers, self.state, self.progress.print)
        if restored is None:
            step = 0
            roll_back(store, -1, 0)
            self.commit(0, evaluation=True)
        else:
            clock, self.state = restored
            step = clock["step"]
            self.go_on_from(clock)

        with self.loop.clock.meter.phase("sync"):
            self.workers.sync()
        prune_checkpoints(store, step)
        if step in evaluation_points(store):
            self.evaluate(step)

        return step

    def go_on_from(self, clock: Clock) -> None:
        """Set clock, log and status back to a checkpoint, and read what the log tells of before."""
        store = self.store
        step = clock["step"]
        self.metrics_bytes = clock["metrics_bytes"]
        self.loop.clock.train_seconds = clock["train_seconds"]
        roll_back(store, step, self.metrics_bytes)
        store.set_status(step=step, train_seconds=clock["train_seconds"])
        evaluations.check_complete(store, self.config, step, ended=False)
        check_rollouts(store, self.progress.print)
        self.progress.print(f"resuming from step {step}")

        lines = read_lines(store.metrics_path)
        self.skipped = {line["step"] for line in lines if line["nonfinite"]}
        for line in lines:
            self.monitor.observe(line)

    def record(self, step: Step) -> None:
        """Write a committed step's line and, every so many steps or if it is skipped, its rollouts.

        Raises:
            FloatingPointError: too many steps in a row were skipped.
            EngineMismatch: the engine does not generate from the policy.
            Altered: another process has taken the run, or changed the log.
        """
        line = metrics(step)
        skipped = step.nonfinite is not None
        self.lock.check_held()
        self.metrics_bytes = append(self.store.metrics_path, [line], self.metrics_bytes)
        if skipped or self.saves_rollouts(step.number):
            self.store.write_rollouts(step.number, rollout_rows(step, replayable=skipped))
        self.tracker.update()

        reward = math.nan if line["reward"] is None else line["reward"]
        self.progress.step(step.number, step.train_seconds, reward)
        if time.monotonic() - self.last_heartbeat >= HEARTBEAT_SECONDS:
            self.last_heartbeat = time.monotonic()
            self.store.set_status(**{k: line[k] for k in ("step", "train_seconds", "reward")})

        if skipped:
            self.skip(step)
        alarm = self.monitor.check(line)
        if alarm is not None:
            self.progress.print(f"alarm: {alarm}")

    def saves_rollouts(self, step: int) -> bool:
        """Return whether the config asks for the rollouts of a step: the first, and every k-th."""
        every = self.config.rollouts_every_steps
        return every is not None and (step == 1 or step % every == 0)

    def skip(self, step: Step) -> None:
        """Count a step that was not applied; end the run if there are too many in a row."""
        self.skipped.add(step.number)
        self.store.set_status(skipped_steps=len(self.skipped))
        self.progress.print(f"step {step.number} is skipped: {step.nonfinite}")
        if all(step.number - back in self.skipped for back in range(NONFINITE_LIMIT)):
            raise FloatingPointError(
                f"{NONFINITE_LIMIT} consecutive steps were skipped: {step.nonfinite}; "
                f"{self.store.folder / 'rollouts'} holds the last one's"
            )

    def commit(self, step: int, evaluation: bool) -> None:
        """Commit a checkpoint of the state after `step`, as an evaluation point or only to resume.

        Raises:
            FloatingPointError: weights or optimizer state are not finite; nothing was written.
        """
        clock = self.loop.clock.train_seconds
        self.lock.check_held()
        check_size(self.store.metrics_path, self.metrics_bytes)

        def write(folder: Path) -> None:
            self.workers.call_all(Worker.save, folder)
            write_state(folder, self.state)
            self.store.write_clock(folder, step, clock, evaluation)

        self.tracker.update(now=True)  # a run that resumes from here does not log these rows again
        with self.loop.clock.meter.phase("checkpoint"):
            self.check_finite(step)
            checkpoint.commit(self.store.checkpoint(step), write)
            prune_checkpoints(self.store, step)
            self.store.set_status(step=step, train_seconds=clock, skipped_steps=len(self.skipped))

        self.report()

    def check_finite(self, step: int) -> None:
        """Raise a `FloatingPointError` if a weight or moment of any process is NaN or infinite."""
        faults = [each for each in self.workers.call_all(Worker.nonfinite) if each is not None]
        if faults:
            raise FloatingPointError(f"no checkpoint of step {step}: {faults[0]}")

    def evaluate(self, step: int) -> None:
        """Evaluate the policy of `step`, resuming an evaluation that was cut off."""
        self.store.set_status(accuracy=self.complete_evaluation(step))
        self.tracker.update()

    def complete_evaluation(self, step: int) -> float:
        """Add the missing records of `step`, with the policy as it is, and return the accuracy."""
        started, path = time.perf_counter(), self.store.evaluation_path(step)
        with self.loop.clock.meter.phase("evaluation"):
            new_records = self.add_records(step, path)
        records = read_lines(path)
        accuracy: float = sum(record["correct"] for record in records) / len(records)
        if new_records:
            clock = self.store.clock(self.store.checkpoint(step))["train_seconds"]
            self.progress.evaluated(step, clock, accuracy, time.perf_counter() - started)
        return accuracy

    def add_records(self, step: int, path: Path) -> int:
        """Add the missing records of `step` to its file, and return how many.

        Records after the valid ones (duplicates, damaged or unexpected lines) are cut off first.
        """
        config, task = self.config, self.loop.task
        total, content = len(self.questions) * config.evaluation.repeats, read_or_empty(path)
        done = already_done(config, task, step, content)
        records = evaluations.complete_records(config, step, content)
        if done == total and not isinstance(records, str):
            if not evaluations.is_changed(path, content):
                evaluations.note_complete(path)
                return 0
            done = 0
        path.with_suffix(evaluations.NOTED).unlink(missing_ok=True)
        if content:  # replaced, since a hard link to it may be a backup
            replace(path, b"".join(line + b"\n" for line in content.split(b"\n")[:done]))
        for chunk in evaluate(config, task, self.questions, self.workers, step, done):
            self.lock.check_held()
            self.progress.redraw(f"evaluating step {step}")
            append(path, (msgspec.structs.asdict(record) for record, _ in chunk))
        fsync(path)
        evaluations.note_complete(path)
        return total - done

    def evaluate_again(self, step: int) -> None:
        """Make the lost evaluation of an earlier step, with the weights of its checkpoint."""
        self.workers.call_all(Worker.load_policy, self.store.checkpoint(step))
        self.workers.sync()
        self.complete_evaluation(step)
