"""Steps of the real loop with completions of one fixed length, for gpu_step.py and gpu_vllm.py.

A step does all that it does in a run, and the loop's own clock measures the phases. Two things are
the benchmark's own: no completion ends before the limit, and the grades alternate.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import torch

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.engines.transformers_engine import TransformersEngine
from pods.method import prompt_selection as selection
from pods.method.keep import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy
from pods.policy.scoring import UpdateContext
from pods.policy.update import update
from pods.training import schedule
from pods.training.clock import TrainClock
from pods.training.loop import TrainingLoop
from pods.training.step import RunState, Step
from pods.types import Grade, Grader, Parts, Prompt, Task


class Endless(Policy):
    """A policy without stop ids, so that every completion has `max_completion_tokens`."""

    @property
    def stop_ids(self) -> list[int]:
        """Return no ids."""
        return []


def endless(policy: Policy) -> Endless:
    """Return a policy of the same weights that no id stops."""
    return Endless(policy.model, policy.tokenizer, policy.reference_model, policy.mirror)


def make_loop(
    policy: Policy, config: Config, engine: Engine, task: Task, prompts: Sequence[Prompt]
) -> TrainingLoop:
    """Build the loop as a run does; every other completion is right.

    The policy is an endless one, and `prompts` are the token ids of the task's train problems.
    """
    grades = cycle([Grade("wrong", True, Parts(0.0)), Grade("right", True, Parts(1.0))])
    on_gpu = policy.device.type == "cuda"
    optimizer = make_optimizer(policy, config.update)
    return TrainingLoop(
        config=config,
        task=replace(task, train_grader=Grader(lambda text, gold: next(grades))),
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, UpdateContext(policy, config), optimizer),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )


def steps(loop: TrainingLoop, wait: Callable[[], object]) -> Iterator[dict[str, Any]]:
    """Take a step each time `wait()` returns a true value.

    Yields:
        `seconds` (wall time of the whole step), `cpu_seconds` (of all threads: close to threads x
        seconds only on a quiet machine), the seconds of each phase, and the distinct lengths of
        the prompts and of the completions.
    """
    no_end = replace(loop.config.budget, train_seconds=None, max_steps=None)
    endless = replace(loop, config=replace(loop.config, budget=no_end))
    taken = schedule.steps(endless, 0, RunState(selection.start(loop.config.prompts)))
    while wait():
        start, cpu = time.perf_counter(), time.process_time()
        step = next(taken)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        yield {"seconds": seconds, "cpu_seconds": cpu, **step.seconds.wall, **_lengths(step)}


def _lengths(step: Step) -> dict[str, list[int]]:
    rollouts = [rollout for group in step.groups for rollout in group.group.rollouts]
    return {
        "prompt_tokens": sorted({len(rollout.prompt_ids) for rollout in rollouts}),
        "completion_tokens": sorted({len(rollout.completion_ids) for rollout in rollouts}),
    }


def make_engine(policy: Endless, config: Config) -> Engine:
    """Build the engine that the config names; vLLM also ignores the model's own stop id."""
    if (settings := config.engine).name == "transformers":
        return TransformersEngine(policy, settings.max_rows, lambda: None)
    from pods.engines.vllm_engine import VllmEngine

    class EndlessVllm(VllmEngine):
        def sampling_params(self, *settings: Any) -> Any:
            params = super().sampling_params(*settings)
            params.ignore_eos = True
            return params

    return EndlessVllm(policy, config, lambda: None)
