"""One run: consume the steps of the schedule, and write what happens to the run folder.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, continue. So a run that
dies anywhere resumes from its newest complete checkpoint and repeats nothing that was committed.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pods.config.schema import Config
from pods.runs import checkpoint, evaluations
from pods.runs.files import append, read_lines
from pods.runs.history import (
    abandoned_paths,
    check_evaluable,
    check_rollouts,
    ended_at,
    evaluation_points,
    missing_evaluations,
    roll_back,
)
from pods.runs.lock import RunLock
from pods.runs.records import Clock
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.signals import Preempted
from pods.training.evaluate import chunk_size, evaluate
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

    def run(self) -> None:
        """Train to the end of the budget, and make each evaluation that is missing.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
            LockLost: the folder was removed or replaced.
        """
        self.lock.check_held()  # loading takes a while, and what follows removes files
        for path in abandoned_paths(self.store):
            self.store.remove(path)
        last = ended_at(self.store, self.config)
        if last is None:
            last = self.train()
        prune_checkpoints(self.store, last)
        clock = self.store.clock(self.store.checkpoint(last))
        self.store.set_status(step=last, train_seconds=clock["train_seconds"])
        self.evaluate_missing(last)
        self.lock.check_held()

    def train(self) -> int:
        """Train from the newest checkpoint, or from the start; return the last step."""
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
        return done

    def begin(self) -> int:
        """Restore the newest checkpoint, or commit that of step 0; return its step."""
        store = self.store
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
        self.loop.clock.train_seconds = clock["train_seconds"]
        roll_back(store, step, clock["metrics_bytes"])
        store.set_status(step=step, train_seconds=clock["train_seconds"])
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
            LockLost: another process may have taken the run.
        """
        line = metrics(step)
        skipped = step.nonfinite is not None
        self.lock.check_held()
        append(self.store.metrics_path, [line])
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
        """Evaluate the policy of `step`, unless that is done, and say how good it is."""
        if not self.store.evaluation_path(step).is_file():
            self.make_evaluation(step)
        records = evaluations.read_evaluation(self.store, self.config, step)
        self.store.set_status(accuracy=evaluations.means(records)["accuracy"])
        self.tracker.update()

    def evaluate_missing(self, last: int) -> None:
        """Make the evaluations that are missing, from their checkpoints; `last` is the last step.

        Raises:
            Damaged: a checkpoint that is to be evaluated is not what was written.
        """
        for step in missing_evaluations(self.store):
            check_evaluable(self.store, step)
            self.workers.call_all(Worker.load_policy, self.store.checkpoint(step))
            self.workers.sync()
            self.make_evaluation(step)
        self.evaluate(last)

    def make_evaluation(self, step: int) -> None:
        """Answer all questions with the policy as it is, after the chunks that are answered."""
        started = time.perf_counter()
        config, task = self.config, self.loop.task
        unfinished = evaluations.Unfinished(self.store, step)
        requests = evaluations.asked(config, step, [problem.id for problem in task.test])
        done = unfinished.keep(requests, chunk_size(config, len(requests)))

        with self.loop.clock.meter.phase("evaluation"):
            for answers in evaluate(config, task, self.questions, self.workers, step, done):
                self.lock.check_held()
                self.progress.redraw(f"evaluating step {step}")
                unfinished.add([answer.record for answer in answers])
            unfinished.finish()

        records = evaluations.read_evaluation(self.store, config, step)
        accuracy = evaluations.means(records)["accuracy"]
        clock = self.store.clock(self.store.checkpoint(step))["train_seconds"]
        self.progress.evaluated(step, clock, accuracy, time.perf_counter() - started)
