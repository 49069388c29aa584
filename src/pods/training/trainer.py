"""One run: consume the steps of the schedule, and write what happens to the run folder.

All processes of a run execute this. The main one writes, and decides by what it finds on the disk.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, continue. So a run that
dies anywhere resumes from its newest complete checkpoint and repeats nothing that was committed.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pods.config.schema import Config
from pods.policy.process_group import T, Ts
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
from pods.system.signals import Preempted, Stop
from pods.training.alarms import Alarms
from pods.training.evaluate import Completed, chunk_size, complete, graded
from pods.training.loop import TrainingLoop
from pods.training.metrics import metrics, rollout_rows
from pods.training.progress import Progress
from pods.training.resume import prune_checkpoints, restore_newest, write_state
from pods.training.schedule import steps
from pods.training.step import RunState, Step
from pods.training.workers import Worker
from pods.types import Prompt

NONFINITE_LIMIT = 3  # consecutive steps with NaN or infinity after which a run fails
HEARTBEAT_SECONDS = 2.0  # between writes of status.json, each of which can take milliseconds


@dataclass(kw_only=True)
class Trainer:
    """Drives one run and, on the main process, writes its folder."""

    config: Config
    store: RunStore
    lock: RunLock | None  # None on other processes than the main one, which write nothing
    worker: Worker
    stop: Stop
    loop: TrainingLoop
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation; the loop's task holds exactly these."""
    state: RunState  # what the run knows after the last committed step
    tracker: Tracker
    progress: Progress
    report: Callable[[], None]  # writes seconds and memory by phase to the attempt's folder
    alarms: Alarms
    skipped: set[int] = field(default_factory=set)  # steps not applied, for NaN or infinity
    last_heartbeat: float = 0.0  # time at which a step was last written to status.json

    def run(self) -> None:
        """Train to the end of the budget, and make each evaluation that is missing.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
            LockLost: the folder was removed or replaced.
        """
        last = self.on_main(self.find_end)
        if last is None:
            last = self.train()
        self.evaluate_missing(last)
        self.check_lock()

    def on_main(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function on the main process alone, and return its result on every process."""
        return self.worker.process_group.on_main(function, *arguments)

    def check_lock(self) -> None:
        """Raise `LockLost` if this process held the run's lock and does not hold it any more."""
        if self.lock is not None:
            self.lock.check_held()

    def find_end(self) -> int | None:
        """Return the last step if the training has ended, and remove what nothing needs."""
        self.check_lock()  # loading takes a while, and what follows removes files
        for path in abandoned_paths(self.store):
            self.store.remove(path)
        return ended_at(self.store, self.config)

    def train(self) -> int:
        """Train from the newest checkpoint, or from the start; return the last step."""
        done = self.begin()
        before = self.loop.clock.train_seconds
        try:
            for step in steps(self.loop, done, self.state):
                self.on_main(self.record, step)
                done = step.number
                self.state = step.state
                if evaluations.due(self.config.checkpoint, done, before, step.train_seconds):
                    self.commit(done, evaluation=True)
                    self.evaluate(done)
                before = step.train_seconds
                self.worker.process_group.check(self.stop.check)
                self.alarms.motion.measure()  # for the next step's line
        except Preempted:
            if not self.on_main(self.store.checkpoint(done).exists):
                self.commit(done, evaluation=False)
            raise

        if done not in self.on_main(evaluation_points, self.store):
            self.commit(done, evaluation=True)
        self.evaluate(done)
        return done

    def begin(self) -> int:
        """Restore the newest checkpoint, or commit that of step 0; return its step."""
        store = self.store
        self.alarms.motion.begin()
        restored = restore_newest(store, self.worker, self.state, self.progress.print)
        if restored is None:
            step = 0
            self.on_main(roll_back, store, -1, 0)
            self.commit(0, evaluation=True)
        else:
            clock, self.state = restored
            step = clock["step"]
            self.loop.clock.train_seconds = clock["train_seconds"]
            self.alarms.motion.moved = self.on_main(self.go_on_from, clock)

        with self.loop.clock.meter.phase("sync"):
            self.worker.engine.sync()
        self.on_main(prune_checkpoints, store, step)
        if step in self.on_main(evaluation_points, store):
            self.evaluate(step)
        self.alarms.motion.measure()
        return step

    def go_on_from(self, clock: Clock) -> bool:
        """Set log and status back to a checkpoint; return whether the engine had moved by then."""
        store = self.store
        step = clock["step"]
        roll_back(store, step, clock["metrics_bytes"])
        store.set_status(step=step, train_seconds=clock["train_seconds"])
        check_rollouts(store, self.progress.print)
        self.progress.print(f"resuming from step {step}")

        lines = read_lines(store.metrics_path)
        self.skipped = {line["step"] for line in lines if line["nonfinite"]}
        return self.alarms.read(lines)

    def record(self, step: Step) -> None:
        """Write a committed step's line and, every so many steps or if it is skipped, its rollouts.

        Raises:
            FloatingPointError: too many steps in a row were skipped.
            EngineMismatch: the engine does not generate from the policy.
            LockLost: another process may have taken the run.
        """
        line = metrics(step, self.alarms.motion.change)
        skipped = step.nonfinite is not None
        self.check_lock()
        append(self.store.metrics_path, [line])
        if skipped or self.saves_rollouts(step.number):
            self.store.write_rollouts(step.number, rollout_rows(step, replayable=skipped))
        self.tracker.update()

        reward = math.nan if line["reward"] is None else line["reward"]
        self.progress.step(step.number, step.train_seconds, reward)
        if time.monotonic() - self.last_heartbeat >= HEARTBEAT_SECONDS:
            self.last_heartbeat = time.monotonic()
            known = {key: line[key] for key in ("step", "train_seconds", "reward")}
            self.store.set_status(**known, alarms=self.alarms.raised)

        if skipped:
            self.skip(step)
        for alarm in self.alarms.check(line):
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
        self.check_lock()

        def write(folder: Path) -> None:
            self.worker.save(folder)
            write_state(folder, self.state)
            self.store.write_clock(folder, step, clock, evaluation)

        self.tracker.update(now=True)  # a run that resumes from here does not log these rows again
        with self.loop.clock.meter.phase("checkpoint"):
            fault = self.worker.nonfinite()
            if fault is not None:
                raise FloatingPointError(f"no checkpoint of step {step}: {fault}")
            folder = self.store.checkpoint(step)
            if self.worker.process_group.is_main:
                checkpoint.commit(folder, write)
            else:
                self.worker.save(folder)  # gives the main process its part
            self.on_main(self.note_commit, step)

        self.report()

    def note_commit(self, step: int) -> None:
        """Write into the status that there is a checkpoint of `step`, and remove earlier ones."""
        prune_checkpoints(self.store, step)
        clock = self.loop.clock.train_seconds
        known = {"step": step, "train_seconds": clock, "skipped_steps": len(self.skipped)}
        self.store.set_status(**known, alarms=self.alarms.raised)

    def evaluate(self, step: int) -> None:
        """Evaluate the policy of `step`, unless that is done, and say how good it is."""
        if not self.on_main(self.store.evaluation_path(step).is_file):
            self.make_evaluation(step)
        self.on_main(self.note_accuracy, step)

    def note_accuracy(self, step: int) -> None:
        """Write into the status what the evaluation of `step` has found."""
        records = evaluations.read_evaluation(self.store, self.config, step)
        self.store.set_status(accuracy=evaluations.means(records)["accuracy"])
        self.tracker.update()

    def evaluate_missing(self, last: int) -> None:
        """Make the evaluations that are missing, from their checkpoints; `last` is the last step.

        Raises:
            Damaged: a checkpoint that is to be evaluated is not what was written.
        """
        self.on_main(self.note_end, last)
        for step in self.on_main(missing_evaluations, self.store):
            self.on_main(check_evaluable, self.store, step)
            self.worker.load_policy(self.store.checkpoint(step))
            self.worker.engine.sync()
            self.make_evaluation(step)
        self.evaluate(last)

    def note_end(self, last: int) -> None:
        """Write the last step into the status."""
        prune_checkpoints(self.store, last)
        clock = self.store.clock(self.store.checkpoint(last))
        self.store.set_status(step=last, train_seconds=clock["train_seconds"])

    def make_evaluation(self, step: int) -> None:
        """Answer all questions with the policy as it is, after the chunks that are answered."""
        started = time.perf_counter()
        config, task = self.config, self.loop.task
        unfinished = evaluations.Unfinished(self.store, step)
        requests = evaluations.asked(config, step, [problem.id for problem in task.test])
        done = self.on_main(unfinished.keep, requests, chunk_size(config, len(requests)))

        with self.loop.clock.meter.phase("evaluation"):
            for chunk in complete(config, task, self.questions, self.loop.engine, step, done):
                self.progress.redraw(f"evaluating step {step}")
                self.on_main(self.keep_answers, unfinished, chunk)
            self.on_main(unfinished.finish)

        self.on_main(self.show_evaluation, step, started)

    def keep_answers(
        self, unfinished: evaluations.Unfinished, completed: Sequence[Completed]
    ) -> None:
        """Grade a chunk of answers and write them."""
        grader = self.loop.task.test_grader
        records = [graded(grader, answer).record for answer in completed]
        self.check_lock()
        unfinished.add(records)

    def show_evaluation(self, step: int, started: float) -> None:
        """Print what an evaluation has found that began at `started`."""
        records = evaluations.read_evaluation(self.store, self.config, step)
        accuracy = evaluations.means(records)["accuracy"]
        clock = self.store.clock(self.store.checkpoint(step))["train_seconds"]
        self.progress.evaluated(step, clock, accuracy, time.perf_counter() - started)
