"""Put the parts of one run together: the only place that names the implementations."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from transformers.utils import logging as transformers_logging

from pods.config import Config
from pods.evaluate import questions
from pods.experiment import Experiment
from pods.method.downsample import find_rule
from pods.policy.load import Policy, load
from pods.policy.optimizer import make_optimizer
from pods.policy.update import update
from pods.progress import Progress
from pods.proof import make_proof
from pods.records import Problem, Task
from pods.rollouts.canary import prove_it_follows
from pods.rollouts.engine import Engine, Prompt
from pods.rollouts.transformers_engine import TransformersEngine
from pods.runs.clock import TrainClock
from pods.runs.meter import Meter
from pods.runs.store import RunStore
from pods.runs.tracking import Tracker
from pods.stop import Stop
from pods.tasks.load import load as load_task
from pods.tasks.prompts import fitting
from pods.train import Loop


def build(
    config: Config,
    store: RunStore,
    tracker: Tracker,
    stop: Stop,
    now: Callable[[], float],
    meter: Meter,
    report: Callable[[], None],
) -> Experiment:
    """Load policy, task and engine and put the run together.

    Args:
        config: of the run.
        store: its folder.
        tracker: its mirror.
        stop: says when to end.
        now: the training clock's source of seconds.
        meter: measures the process by phase.
        report: writes down what the meter has measured.

    Raises:
        ValueError: weights or data are missing, malformed or unfit for each other.
    """
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(config.hardware.threads)
    task = load_task(config.task)
    stop.check()
    policy = load(config)
    on_gpu = policy.device.type == "cuda"
    if on_gpu:
        meter.measure(torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
    train, prompts = _fitting("train", task.train, policy, config)
    test, asked = _fitting("test", questions(config, task), policy, config)
    engine = make_engine(policy, config, stop.check)
    if config.engine.name == "vllm":
        prove_it_follows(policy, engine, prompts[0])
    optimizer = make_optimizer(policy, config.update)
    loop = Loop(
        config=config,
        task=Task(task.name, train, test, task.grade),
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, policy, optimizer, config, check=stop.check),
        clock=TrainClock(now, torch.cuda.synchronize if on_gpu else lambda: None, meter=meter),
    )
    progress = Progress(config.budget)
    return Experiment(
        config, store, policy, optimizer, loop, asked, tracker, progress, stop, meter, report,
        make_proof(config),
    )  # fmt: skip


def make_engine(policy: Policy, config: Config, check: Callable[[], None]) -> Engine:
    """The engine that the config names; `check()` may raise between tokens."""
    if config.engine.name == "vllm":
        from pods.rollouts.vllm_engine import VllmEngine

        return VllmEngine(policy, config, check)
    return TransformersEngine(policy, config.engine.max_rows, check)


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
