"""One run: consume the steps that the loop yields, and write what happens to the run folder.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, continue. So a run that
dies anywhere resumes from its newest complete checkpoint and repeats nothing that was committed.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pods.config.schema import Config
from pods.method import adaptive, prompt_selection
from pods.method.adaptive import Adaptive
from pods.method.prompt_selection import Selector
from pods.runs import checkpoint
from pods.runs.evaluations import answered_questions, check_complete, due, is_evaluated
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
    abandoned_paths,
    clocks,
    evaluation_points,
    logprob_gaps,
    mark_damaged,
    newest_checkpoint,
    remove_stopgaps,
    roll_back,
    skipped_steps,
)
from pods.runs.lock import RunLock
from pods.runs.store import OPTIMIZER, RESUMABLE, RunStore, gzip_lines
from pods.runs.tracking.tracker import Tracker
from pods.system.errors import as_short_text, is_machine_error
from pods.system.signals import Preempted, Stop
from pods.training.clock import Meter
from pods.training.completions import Completions
from pods.training.evaluate import AskedSet, already_done, evaluate
from pods.training.loop import TrainingLoop
from pods.training.metrics import metrics, replay_rows, rollout_rows
from pods.training.mismatch import MismatchMonitor
from pods.training.progress import Progress
from pods.training.step import Step
from pods.training.worker_group import WorkerGroup
from pods.types import Prompt

HEARTBEAT_SECONDS = 2.0  # between writes of status.json, each of which can take milliseconds
REPLAYABLE = 3  # weights are kept for so many runs of consecutive skipped steps


@dataclass(kw_only=True)
class Trainer:
    """Drives one run and writes its folder."""

    config: Config
    store: RunStore
    lock: RunLock
    workers: WorkerGroup
    """The processes that hold policy, optimizer and engine."""
    loop: TrainingLoop
    selector: Selector
    """State of prompt selection after the last committed step."""
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation."""
    adaptive: Adaptive | None
    """What an adaptive run knows after the last committed step; None: n and m stay."""
    further: Sequence[AskedSet]
    """Test sets beside the task's own."""
    tracker: Tracker
    progress: Progress
    stop: Stop
    meter: Meter
    report: Callable[[], None]
    """Writes the meter's seconds and memory by phase to the attempt's folder."""
    monitor: MismatchMonitor
    skipped: set[int] = field(default_factory=set)
    """Numbers of the steps that were not applied because of NaN or infinity."""
    last_heartbeat: float = 0.0
    """Time at which a step was last written to status.json."""
    metrics_bytes: int = 0
    """Size of metrics.jsonl as this run has written it."""

    def run(self) -> None:
        """Train from the newest checkpoint, or from the start, to the end of the budget.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
            Altered: the folder does not hold what was written; the same command repairs that.
        """
        done = self.resume()
        try:
            for step in self.loop.steps(done, self.selector, self.adaptive):
                self.record(step)
                done, self.selector, self.adaptive = step.number, step.selector, step.adaptive
                if self.is_due(step):
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
        self.redo_lost_evaluations()
        self.check_complete(done)

    def is_due(self, step: Step) -> bool:
        """Return whether this step is an evaluation point; in `run` the last step always is one.

        It is a function of the step and its clock alone, so that a resumed run evaluates at the
        same steps.
        """
        before = step.train_seconds - sum(step.seconds.values())
        return due(self.config.checkpoint, step.number, before, step.train_seconds)

    def resume(self) -> int:
        """Restore the newest complete checkpoint, or commit that of step 0; return its step."""
        for path in abandoned_paths(self.store):
            if not path.parent.is_symlink():
                remove(path)
        folder, fault = self.newest(), None
        while folder is not None and (fault := self.restore(folder)) is not None:
            self.set_aside(folder, fault)
            folder = self.newest()
        if (
            folder is None and fault is not None
        ):  # a failed restore may have overwritten the initial weights
            raise Altered(f"{self.store.checkpoints} holds no checkpoint to resume from")
        step = 0
        if folder is None:
            roll_back(self.store, -1, 0)
            self.commit(0, evaluation=True)
        else:
            state = self.store.clock(folder)
            step = state["step"]
            self.loop.clock.train_seconds = state["train_seconds"]
            self.metrics_bytes = state["metrics_bytes"]
            roll_back(self.store, step, self.metrics_bytes)
            self.progress.print(f"resuming from step {step}")
            self.skipped = skipped_steps(self.store)
            self.monitor.resume(logprob_gaps(self.store))
        with self.meter.phase("sync"):
            self.loop.engine.sync()
        self.prune_checkpoints(step)
        if step in evaluation_points(self.store):
            self.evaluate(step)
        return step

    def newest(self) -> Path | None:
        """Return the newest complete checkpoint to resume from; set damaged ones aside."""
        folder, complaints = newest_checkpoint(self.store, needs=OPTIMIZER)
        for damaged, fault in complaints.items():
            self.set_aside(damaged, fault)
        return folder

    def set_aside(self, folder: Path, fault: str) -> None:
        """Report the fault of a checkpoint, and set it aside."""
        self.progress.print(f"damaged checkpoint set aside: {folder.name}: {fault}")
        mark_damaged(folder)

    def restore(self, folder: Path) -> str | None:
        """Restore a checkpoint; return the fault of one whose files do not fit this policy.

        Raises:
            OSError: the disk fails.
        """
        try:
            self.workers.restore(folder)
            state = self.store.selection(folder)
            known = state.pop("adaptive", {})
            self.selector = prompt_selection.restore(self.config.prompts, state)
            self.adaptive = None if self.adaptive is None else adaptive.restore(known)
        except Exception as error:  # safetensors, torch and a selector raise many kinds
            if self.workers.worker.process_group.size > 1 or is_machine_error(error):
                raise  # other processes may have restored it
            return as_short_text(error)
        return None

    def record(self, step: Step) -> None:
        """Write a committed step's line and, every so many steps, its rollouts.

        Raises:
            FloatingPointError: too many consecutive steps were skipped.
            EngineMismatch: the engine does not generate from the policy.
            Altered: another process has taken the run, or changed the log.
        """
        line = metrics(step)
        self.lock.check_held()
        self.metrics_bytes = self.store.append_metrics(line, self.metrics_bytes)
        every = self.config.rollouts_every_steps
        if every is not None and (step.number == 1 or step.number % every == 0):
            self.store.write_rollouts(step.number, rollout_rows(step))
        self.tracker.update()
        reward = math.nan if line["reward"] is None else line["reward"]
        self.progress.step(step.number, step.train_seconds, reward)
        if time.monotonic() - self.last_heartbeat >= HEARTBEAT_SECONDS:
            self.last_heartbeat = time.monotonic()
            self.store.set_status(step=step.number, train_seconds=step.train_seconds)
        if step.nonfinite is not None:
            self.keep_for_replay(step)
        alarm = self.monitor.check(step)
        if alarm is not None:
            self.progress.print(f"alarm: {alarm}")

    def keep_for_replay(self, step: Step) -> None:
        """Keep the rollouts of a skipped step; end the run if there are too many in a row."""
        self.skipped.add(step.number)
        first_of_series = [number for number in self.skipped if number - 1 not in self.skipped]
        with_policy = step.number in first_of_series and len(first_of_series) <= REPLAYABLE

        def write(folder: Path) -> None:
            (folder / "rollouts.jsonl.gz").write_bytes(gzip_lines(replay_rows(step)))
            (folder / "reason.txt").write_text(f"{step.nonfinite}\n")
            if with_policy:  # the later steps of a series have equal weights: none is applied
                self.workers.save(folder)

        folder = self.store.nonfinite(step.number)
        checkpoint.commit(folder, write)
        self.store.set_status(void_steps=len(self.skipped))
        self.progress.print(f"step {step.number} is skipped: {step.nonfinite} (kept: {folder})")
        limit = self.config.update.nonfinite_limit
        if all(step.number - back in self.skipped for back in range(limit)):
            raise FloatingPointError(
                f"{limit} consecutive steps were skipped: {step.nonfinite}; "
                f"{folder} holds the last one"
            )

    def commit(self, step: int, evaluation: bool) -> None:
        """Commit a checkpoint of the state after `step`, as an evaluation point or only to resume.

        Raises:
            FloatingPointError: weights or optimizer state are not finite; nothing was written.
            OSError: the disk is full or fails; what was committed before is untouched.
        """
        clock = self.loop.clock.train_seconds
        self.lock.check_held()
        check_size(self.store.metrics_path, self.metrics_bytes)

        def write(folder: Path) -> None:
            self.workers.save(folder)
            known = {} if self.adaptive is None else {"adaptive": adaptive.dump(self.adaptive)}
            self.store.write_selection(folder, {**prompt_selection.dump(self.selector), **known})
            self.store.write_clock(folder, step, clock, evaluation)

        self.tracker.update(now=True)  # a run that resumes from here does not log these rows again
        with self.meter.phase("checkpoint"):
            nonfinite = self.workers.nonfinite()
            if nonfinite is not None:
                raise FloatingPointError(f"no checkpoint of step {step}: {nonfinite}")
            checkpoint.commit(self.store.checkpoint(step), write)
            self.prune_checkpoints(step)
            self.store.set_status(step=step, train_seconds=clock, void_steps=len(self.skipped))
        self.report()

    def prune_checkpoints(self, step: int) -> None:
        """Remove what no resume needs now that there is a checkpoint of `step`."""
        remove_stopgaps(self.store, step)
        for folder in list(clocks(self.store))[:-RESUMABLE]:
            with suppress(*checkpoint.READ_ERRORS):  # a damaged checkpoint is left as it is
                checkpoint.remove_file(folder, OPTIMIZER)

    def test_sets(self) -> dict[str, AskedSet]:
        """Return all test sets by name, the main one first."""
        main = AskedSet("", self.loop.task, self.questions)
        return {test_set.name: test_set for test_set in (main, *self.further)}

    def evaluate(self, step: int) -> None:
        """Evaluate the policy of `step`, resuming an evaluation that was cut off."""
        clock = self.loop.clock.train_seconds
        for name in self.test_sets():
            started, path = time.perf_counter(), self.store.evaluation_path(step, name)
            new_records = self.complete_evaluation(step, path, name)
            records = read_lines(path)
            accuracy = sum(record["correct"] for record in records) / len(records)
            if not name:
                self.store.set_status(accuracy=accuracy)
            if new_records:
                seconds = time.perf_counter() - started
                self.progress.evaluated(step, clock, accuracy, seconds, name)
        self.tracker.update()

    def redo_lost_evaluations(self) -> None:
        """Repeat the evaluations that were lost during the run; training is over by now."""
        for step in evaluation_points(self.store):
            if not all(
                is_evaluated(self.store, self.config, step, len(test_set.questions), name)
                for name, test_set in self.test_sets().items()
            ):
                self.workers.load_policy(self.store.checkpoint(step))
                self.loop.engine.sync()
                self.evaluate(step)

    def check_complete(self, last: int) -> None:
        """Read back everything that a finished run must hold, up to step `last`.

        Raises:
            Altered: something is missing or damaged.
        """
        self.lock.check_held()
        check_size(self.store.metrics_path, self.metrics_bytes)
        questions = {name: len(each.questions) for name, each in self.test_sets().items()}
        check_complete(self.store, self.config, last, questions)

    def complete_evaluation(self, step: int, path: Path, name: str = "") -> int:
        """Add the missing records of `step`, with the policy as it is; return how many.

        Records after the valid ones (duplicates, damaged or unexpected lines) are cut off first.

        Args:
            step: of the policy.
            path: file of the records.
            name: of a further test set; empty: the main one.
        """
        test_set, config, engine = self.test_sets()[name], self.config, self.loop.engine
        task, questions = test_set.task, test_set.questions
        total = len(questions) * config.evaluation.repeats
        records = read_until_damage(path)
        done = already_done(config, task, step, records, name)
        content = path.read_bytes() if records else b""
        if done != total or answered_questions(config, step, content, name) is None:
            kept = None
            if config.evaluation.save_completions:
                kept = Completions(self.store.evaluation_path(step, name), task.test, done)
            keep = None if kept is None else kept.texts.append
            with self.meter.phase("evaluation"):
                truncate_to(path, done)
                for chunk in evaluate(config, task, questions, engine, step, done, name, keep):
                    self.lock.check_held()
                    if kept is not None:
                        kept.write(chunk)
                    append(path, map(asdict, chunk))
                    self.progress.evaluating(step)
                fsync(path)
        return total - done
