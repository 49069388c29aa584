"""One run: walk through the steps that the loop yields and write what happens.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, go on. So a run that
dies anywhere goes on from its newest whole checkpoint and repeats nothing that was committed.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pods.config import Config
from pods.crew import Crew
from pods.evaluate import already_done, evaluate
from pods.method import prompts
from pods.method.prompts import Selector
from pods.progress import Progress
from pods.proof import Proof
from pods.rollouts.engine import Prompt
from pods.runs import checkpoint
from pods.runs.files import (
    Altered,
    append,
    check_size,
    fsync,
    read_lines,
    read_until_damage,
    remove,
    truncate_to,
)
from pods.runs.history import (
    clocks,
    drop_stopgaps,
    evaluation_points,
    gaps,
    leftovers,
    newest_checkpoint,
    roll_back,
    set_aside,
    void_steps,
)
from pods.runs.lock import Held
from pods.runs.meter import Meter
from pods.runs.mirror import evaluation_row, training_row
from pods.runs.points import answered, due
from pods.runs.read_back import hold_to_the_end, is_evaluated
from pods.runs.store import OPTIMIZER, RESUMABLE, RunStore, packed
from pods.runs.tracking import Tracker
from pods.step import Step
from pods.step_record import metrics, replay_rows, rollout_rows
from pods.stop import Preempted, Stop
from pods.train import Loop
from pods.trouble import in_short, is_machine_trouble

BEAT_SECONDS = 2.0  # between heartbeats: a rename can take milliseconds
REPLAYABLE = 3  # rows of steps not applied whose weights are kept


@dataclass
class Experiment:
    """One run in progress."""

    config: Config
    store: RunStore
    lock: Held
    crew: Crew
    """Policy and optimizer, and whoever moves them."""
    loop: Loop
    selector: Selector
    """What prompt selection knows so far."""
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation."""
    tracker: Tracker
    progress: Progress
    stop: Stop
    meter: Meter
    report: Callable[[], None]
    """Writes down what the meter has measured so far."""
    proof: Proof
    void: set[int] = field(default_factory=set)
    """Steps that were not applied, for NaN or infinity."""
    beaten: float = 0.0
    """When status.json last heard of a step."""
    logged: int = 0
    """Bytes of metrics.jsonl that this run has written."""

    def run(self) -> None:
        """Train from the newest checkpoint, or from the start, to the end of the budget.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
            Altered: the folder does not hold what was written there; the same command mends that.
        """
        done = self.resume()
        try:
            for step in self.loop.steps(done, self.selector):
                self.record(step)
                done, self.selector = step.step, step.selector
                if self.due(step):
                    self.commit(done, evaluation=True)
                    self.evaluate(done)
                self.stop.check()
        except Preempted:
            if not self.store.checkpoint(done).exists():
                self.commit(done, evaluation=False)
            raise
        if done not in evaluation_points(self.store):
            self.commit(done, evaluation=True)
        self.evaluate(done)
        self.evaluate_again()
        self.read_back(done)

    def due(self, step: Step) -> bool:
        """Say whether this step is an evaluation point; the last one always is, in `run`.

        A function of the step and its clock alone, so that a resumed run has the same points.
        """
        before = step.train_seconds - sum(step.seconds.values())
        return due(self.config.checkpoint, step.step, before, step.train_seconds)

    def resume(self) -> int:
        """Take up the newest whole checkpoint, or commit that of step 0; return its step."""
        for path in leftovers(self.store):
            if not path.parent.is_symlink():
                remove(path)
        folder, wrong = self.newest(), None
        while folder is not None and (wrong := self.restore(folder)) is not None:
            self.pass_over(folder, wrong)
            folder = self.newest()
        if folder is None and wrong is not None:  # the policy is not what it was loaded as
            raise Altered(f"{self.store.checkpoints} holds none to go on from")
        step = 0
        if folder is None:
            roll_back(self.store, -1, 0)
            self.commit(0, evaluation=True)
        else:
            state = self.store.clock(folder)
            step = state["step"]
            self.loop.clock.train_seconds = state["train_seconds"]
            self.logged = state["metrics_bytes"]
            roll_back(self.store, step, self.logged)
            self.progress.print(f"going on from step {step}")
            self.void = void_steps(self.store)
            self.proof.recall(gaps(self.store))
        with self.meter.phase("sync"):
            self.loop.engine.sync()
        self.tidy(step)
        if step in evaluation_points(self.store):
            self.evaluate(step)
        return step

    def newest(self) -> Path | None:
        """The newest whole checkpoint to go on from; those that are damaged are set aside."""
        folder, complaints = newest_checkpoint(self.store, needs=OPTIMIZER)
        for damaged, wrong in complaints.items():
            self.pass_over(damaged, wrong)
        return folder

    def pass_over(self, folder: Path, wrong: str) -> None:
        """Say what is wrong with a checkpoint, and set it aside."""
        self.progress.print(f"damaged checkpoint passed over: {folder.name}: {wrong}")
        set_aside(folder)

    def restore(self, folder: Path) -> str | None:
        """Take up a checkpoint; or say why not: its files are as listed, but not of this policy.

        Raises:
            OSError: the disk fails.
        """
        try:
            self.crew.restore(folder)
            self.selector = prompts.restore(self.config.prompts, self.store.selection(folder))
        except Exception as error:  # safetensors, torch and a selector raise many kinds
            if self.crew.worker.team.size > 1 or is_machine_trouble(error):
                raise  # others may have taken it up
            return in_short(error)
        return None

    def record(self, step: Step) -> None:
        """Write a committed step's line, and now and then its rollouts.

        Raises:
            FloatingPointError: too many steps in a row were not applied.
            NotThePolicy: the engine does not generate from the policy.
            Altered: this process is no longer the only one, or the log not what it wrote.
        """
        line = metrics(step)
        self.lock.check()
        self.logged = self.store.append_metrics(line, self.logged)
        every = self.config.rollouts_every_steps
        if every is not None and (step.step == 1 or step.step % every == 0):
            self.store.write_rollouts(step.step, rollout_rows(step))
        self.tracker.log(training_row(line))
        reward = math.nan if line["reward"] is None else line["reward"]
        self.progress.step(step.step, step.train_seconds, reward)
        if time.monotonic() - self.beaten >= BEAT_SECONDS:
            self.beaten = time.monotonic()
            self.store.set_status(step=step.step, train_seconds=step.train_seconds)
        if step.nonfinite is not None:
            self.keep_for_replay(step)
        alarm = self.proof.judge(step)
        if alarm is not None:
            self.progress.print(f"alarm: {alarm}")

    def keep_for_replay(self, step: Step) -> None:
        """Keep what a step that was not applied was made of; end the run if they pile up."""
        self.void.add(step.step)
        rows = [one for one in self.void if one - 1 not in self.void]  # the first of each row
        with_policy = step.step in rows and len(rows) <= REPLAYABLE

        def write(folder: Path) -> None:
            (folder / "rollouts.jsonl.gz").write_bytes(packed(replay_rows(step)))
            (folder / "reason.txt").write_text(f"{step.nonfinite}\n")
            if with_policy:  # the later ones of a row have the same weights: none is applied
                self.crew.save(folder)

        place = self.store.nonfinite(step.step)
        checkpoint.commit(place, write)
        self.store.set_status(void_steps=len(self.void))
        self.progress.print(f"step {step.step} is not applied: {step.nonfinite} (kept: {place})")
        limit = self.config.update.nonfinite_limit
        if all(step.step - back in self.void for back in range(limit)):
            raise FloatingPointError(f"{limit} steps in a row were not applied: {step.nonfinite}; "
                                     f"{place} has the last one")  # fmt: skip

    def commit(self, step: int, evaluation: bool) -> None:
        """Commit a checkpoint of the state after `step`, to be evaluated or only to go on from.

        Raises:
            FloatingPointError: weights or optimizer state are not finite; nothing was written.
            OSError: the disk is full or fails; what was committed before is untouched.
        """
        clock = self.loop.clock.train_seconds
        self.lock.check()
        check_size(self.store.metrics_path, self.logged)

        def write(folder: Path) -> None:
            self.crew.save(folder)
            self.store.write_selection(folder, prompts.dump(self.selector))
            self.store.write_clock(folder, step, clock, evaluation)

        self.tracker.flush()  # a run that goes on from here does not make these rows again
        with self.meter.phase("checkpoint"):
            wrong = self.crew.nonfinite()
            if wrong is not None:
                raise FloatingPointError(f"no checkpoint of step {step}: {wrong}")
            checkpoint.commit(self.store.checkpoint(step), write)
            self.tidy(step)
            self.store.set_status(step=step, train_seconds=clock, void_steps=len(self.void))
        self.report()

    def tidy(self, step: int) -> None:
        """Let go of what no resume needs now that there is a checkpoint of `step`."""
        drop_stopgaps(self.store, step)
        for folder in list(clocks(self.store))[:-RESUMABLE]:
            with suppress(*checkpoint.DAMAGED):  # damaged: left as it is
                checkpoint.thin(folder, OPTIMIZER)

    def evaluate(self, step: int) -> None:
        """Answer every question R times with the policy of `step`, going on where it stopped."""
        started = time.perf_counter()
        made = self.answer(step, self.store.evaluation_path(step))
        clock = self.loop.clock.train_seconds
        row = evaluation_row(step, clock, read_lines(self.store.evaluation_path(step)))
        accuracy = row.values["eval/accuracy"]
        self.store.set_status(accuracy=accuracy)
        self.tracker.log(row)
        if made:
            self.progress.evaluated(step, clock, accuracy, time.perf_counter() - started)

    def evaluate_again(self) -> None:
        """Make again the evaluations that were lost while the run went on: it trains no more."""
        for step in evaluation_points(self.store):
            if not is_evaluated(self.store, self.config, step, len(self.questions)):
                self.crew.load_policy(self.store.checkpoint(step))
                self.loop.engine.sync()
                self.evaluate(step)

    def read_back(self, last: int) -> None:
        """See that the folder holds all that a run which is done must hold, up to step `last`.

        Raises:
            Altered: it does not.
        """
        self.lock.check()
        check_size(self.store.metrics_path, self.logged)
        hold_to_the_end(self.store, self.config, last, len(self.questions))

    def answer(self, step: int, path: Path) -> int:
        """Make the records of `step` that are missing, with the policy as it is; return how many.

        What follows the good ones, twice there, damaged or of something else, is cut off first.
        """
        task, engine = self.loop.task, self.loop.engine
        total = len(self.questions) * self.config.evaluation.repeats
        there = read_until_damage(path)
        done = already_done(self.config, task, step, there)
        content = path.read_bytes() if there else b""
        if done != total or answered(self.config, step, content) is None:
            with self.meter.phase("evaluation"):
                truncate_to(path, done)
                for records in evaluate(self.config, task, self.questions, engine, step, done):
                    self.lock.check()
                    append(path, map(asdict, records))
                    self.progress.evaluating(step)
                fsync(path)
        return total - done
