"""Wire one run: build its parts, walk through the steps that the loop yields, write what happens.

The order of events at a checkpoint is: commit the checkpoint, evaluate it, go on. So a run that
dies anywhere goes on from its newest whole checkpoint and repeats nothing that was committed.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from pods.config import Config
from pods.evaluate import evaluate, questions
from pods.method.downsample import find_rule
from pods.policy.load import Policy, load
from pods.policy.optimizer import make_optimizer, restore_optimizer, save_optimizer
from pods.policy.update import update
from pods.progress import Progress
from pods.records import Problem, Task
from pods.rollouts.engine import Prompt
from pods.rollouts.transformers_engine import TransformersEngine
from pods.runs import checkpoint
from pods.runs.clock import TrainClock
from pods.runs.files import append, read_lines, truncate_to
from pods.runs.store import RunStore
from pods.runs.tracking import Tracker
from pods.step_record import metrics, rollout_rows
from pods.stop import Preempted, Stop
from pods.tasks.load import load as load_task
from pods.tasks.prompts import fitting
from pods.train import Loop, Step

OPTIMIZER = "optimizer.safetensors"  # twice the size of what is trained
RESUMABLE = 2  # newest checkpoints that keep it; the older ones are for evaluation alone


@dataclass
class Experiment:
    """One run in progress."""

    config: Config
    store: RunStore
    policy: Policy
    optimizer: torch.optim.AdamW
    loop: Loop
    questions: Sequence[Prompt]
    """Token ids of each question of the evaluation."""
    tracker: Tracker
    progress: Progress
    stop: Stop

    def run(self) -> None:
        """Train from the newest checkpoint, or from the start, to the end of the budget.

        Raises:
            Preempted: the process was asked to stop; a checkpoint of the last step is committed.
        """
        done = self.resume()
        try:
            for step in self.loop.steps(done):
                self.record(step)
                done = step.step
                if self.due(step):
                    self.commit(done, evaluation=True)
                    self.evaluate(done)
                self.stop.check()
        except Preempted:
            if not self.store.checkpoint(done).exists():
                self.commit(done, evaluation=False)
            raise
        if done not in self.store.evaluation_points():
            self.commit(done, evaluation=True)
        self.evaluate(done)

    def due(self, step: Step) -> bool:
        """Say whether this step is an evaluation point; the last one always is, in `run`.

        A function of the step and its clock alone, so that a resumed run has the same points.
        """
        every = self.config.checkpoint
        if every.every_steps is not None and step.step % every.every_steps == 0:
            return True
        if every.every_train_seconds is None:
            return False
        before = step.train_seconds - sum(step.seconds.values())
        return step.train_seconds // every.every_train_seconds > before // every.every_train_seconds

    def resume(self) -> int:
        """Take up the newest whole checkpoint, or commit that of step 0; return its step."""
        folder = checkpoint.newest(self.store.checkpoints, needs=OPTIMIZER)
        step = 0
        if folder is None:
            self.store.roll_back(-1, 0)
            self.commit(0, evaluation=True)
        else:
            state = self.store.clock(folder)
            step = state["step"]
            self.policy.restore(folder / "policy")
            restore_optimizer(self.optimizer, folder / OPTIMIZER)
            self.loop.clock.train_seconds = state["train_seconds"]
            self.store.roll_back(step, state["metrics_bytes"])
        self.tidy(step)
        if step in self.store.evaluation_points():
            self.evaluate(step)
        return step

    def record(self, step: Step) -> None:
        """Write a committed step's line, and now and then its rollouts."""
        line = metrics(step)
        self.store.append_metrics(line)
        every = self.config.rollouts_every_steps
        if every is not None and (step.step == 1 or step.step % every == 0):
            self.store.write_rollouts(step.step, rollout_rows(step))
        self.tracker.log({k: v for k, v in line.items() if isinstance(v, int | float)})
        self.progress.step(step.step, step.train_seconds, line["reward"])
        self.store.beat(step.step, step.train_seconds)

    def commit(self, step: int, evaluation: bool) -> None:
        """Commit a checkpoint of the state after `step`, to be evaluated or only to go on from."""
        clock = self.loop.clock.train_seconds

        def write(folder: Path) -> None:
            self.policy.save(folder / "policy")
            save_optimizer(self.optimizer, folder / OPTIMIZER)
            logged = self.store.sync_metrics()
            self.store.write_clock(folder, step, clock, logged, evaluation)

        checkpoint.commit(self.store.checkpoint(step), write)
        self.tidy(step)
        self.store.set_status(step=step, train_seconds=clock)

    def tidy(self, step: int) -> None:
        """Let go of what no resume needs now that there is a checkpoint of `step`."""
        self.store.drop_stopgaps(step)
        for folder in list(self.store.clocks())[:-RESUMABLE]:
            checkpoint.thin(folder, OPTIMIZER)

    def evaluate(self, step: int) -> None:
        """Answer every question R times with the policy of `step`, going on where it stopped."""
        path, size = self.store.evaluation_path(step), self.config.engine.max_rows
        total = len(self.questions) * self.config.evaluation.repeats
        done = len(read_lines(path))
        started = time.perf_counter()
        if done != total:
            done -= done % size
            truncate_to(path, done)
            task, engine = self.loop.task, self.loop.engine
            for records in evaluate(self.config, task, self.questions, engine, step, done):
                append(path, map(asdict, records))
                self.progress.evaluating(step)
        rows = read_lines(path)
        means = {
            f"eval/{name}": sum(row[key] for row in rows) / len(rows)
            for name, key in (("accuracy", "correct"), ("format", "format"), ("length", "length"))
        }
        accuracy, clock = means["eval/accuracy"], self.loop.clock.train_seconds
        self.store.set_status(accuracy=accuracy)
        if done != total:
            self.tracker.log({"train_seconds": clock, "step": step, **means})
            self.progress.evaluated(step, clock, accuracy, time.perf_counter() - started)


def build(config: Config, store: RunStore, tracker: Tracker, stop: Stop) -> Experiment:
    """Load policy, task and engine and put the run together.

    Raises:
        ValueError: weights or data are missing, malformed or unfit for each other.
    """
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(config.hardware.threads)
    task = load_task(config.task)
    policy = load(config)
    train, prompts = _fitting("train", task.train, policy, config)
    test, asked = _fitting("test", questions(config, task), policy, config)
    optimizer = make_optimizer(policy, config.update)
    on_gpu = policy.device.type == "cuda"
    loop = Loop(
        config=config,
        task=Task(task.name, train, test, task.grade),
        prompts=prompts,
        engine=TransformersEngine(policy, config.engine.max_rows, stop.check),
        rule=find_rule(config.sampler.rule),
        update=partial(update, policy, optimizer, config),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )
    progress = Progress(config.budget)
    return Experiment(config, store, policy, optimizer, loop, asked, tracker, progress, stop)


def _fitting(
    split: str, problems: Sequence[Problem], policy: Policy, config: Config
) -> tuple[tuple[Problem, ...], tuple[Prompt, ...]]:
    """The problems whose prompts fit, and their token ids; say how many do not."""
    limit = config.sampling.max_prompt_tokens
    kept, prompts = fitting(problems, policy.tokenizer, limit)
    if not kept:
        raise ValueError(
            f"sampling.max_prompt_tokens={limit}: none of the {len(problems)} {split} prompts fits"
        )
    if len(kept) < len(problems):
        print(f"dropped {len(problems) - len(kept)} of {len(problems)} {split} problems: "
              f"prompts over {limit} tokens")  # fmt: skip
    return kept, prompts
