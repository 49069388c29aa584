"""Take steps of the real loop with completions of one fixed length, one per line on stdin.

    seq 4 | python experiments/benchmarks/step.py [KEY=VALUE ...]        overrides as for src/run.py

`TrainingLoop.step` does all that it does in a run, and its own clock measures the phases. Two
things are the benchmark's own: no completion ends before the limit, and the grades alternate. The
script prints a JSON line when all is loaded, then one per step, the first of which warms up.
`against_trl.py` compares this with TRL.
"""

import json
import sys
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
from pods.method.prompt_order import PromptOrder
from pods.method.rules import find_rule
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import Policy, load
from pods.policy.scoring import Context
from pods.policy.update import update
from pods.training.clock import TrainClock
from pods.training.loop import TrainingLoop
from pods.training.step import Step
from pods.types import Grade, Grader, Parts, Problem, Prompt, Task

OVERRIDES = ("sampler=all", "nm=n16_m16", "prompts_per_step=1", "tracking=none")
POOL = 100  # train problems: enough for a benchmark, and quickly encoded


class Endless(Policy):
    """A policy without stop ids, so that every completion has `max_completion_tokens`."""

    @property
    def stop_ids(self) -> list[int]:
        """Return no ids."""
        return []


def endless(policy: Policy) -> Endless:
    """Return a policy of the same weights that no id stops."""
    return Endless(policy.model, policy.tokenizer, policy.reference_model, policy.mirror)


def configured(overrides: Sequence[str]) -> Config:
    """Compose a config as `src/run.py` does, from the benchmark's own overrides and then these."""
    from pods.config.checks import validate  # imported here: gpu.py brings a config of its own
    from pods.config.compose import compose

    return validate(compose([*OVERRIDES, *overrides]))


def pool(config: Config, tokenizer: Any) -> tuple[Task, tuple[Prompt, ...]]:
    """Return the task with the first train problems whose prompts fit, and their token ids."""
    from pods.tasks.load import load as load_task
    from pods.tasks.prompts import drop_long_prompts

    task = load_task(config.task)
    limit = config.sampling.max_prompt_tokens
    problems, prompts, _ = drop_long_prompts(task.train[:POOL], tokenizer, limit)
    return replace(task, train=problems), prompts


def order(config: Config, problems: Sequence[Problem], steps: int) -> list[Problem]:
    """Return the problems of the first `steps` steps, one per step."""
    prompt_order = PromptOrder(config.seed, len(problems))
    return [problems[prompt_order.problem(position)] for position in range(steps)]


def make_loop(
    policy: Policy, config: Config, engine: Engine, task: Task, prompts: Sequence[Prompt]
) -> TrainingLoop:
    """Build the loop as a run does; every other completion is right.

    Args:
        policy: an endless one.
        config: of the run.
        engine: of the same policy.
        task: with the problems to train on.
        prompts: token ids of each of them.
    """
    grades = cycle(
        (Grade("wrong", True, Parts(correct=0.0)), Grade("right", True, Parts(correct=1.0)))
    )
    on_gpu = policy.device.type == "cuda"
    optimizer = make_optimizer(policy, config.update)
    return TrainingLoop(
        config=config,
        task=replace(task, train_grader=Grader(lambda text, gold: next(grades))),
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, Context(policy, config), optimizer),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )


def steps(loop: TrainingLoop, wait: Callable[[], object]) -> Iterator[dict[str, Any]]:
    """Take a step each time `wait()` returns a true value.

    Yields:
        `seconds` (wall time of the whole step), `cpu_seconds` (of all threads: close to threads x
        seconds only on a quiet machine), the seconds of each phase, and the distinct lengths of
        the prompts and of the completions.
    """
    selector, number = selection.start(loop.config.prompts), 0
    while wait():
        number += 1
        start, cpu = time.perf_counter(), time.process_time()
        step = loop.step(number, selector)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        selector = step.selector
        yield {"seconds": seconds, "cpu_seconds": cpu, **step.seconds, **_lengths(step)}


def _lengths(step: Step) -> dict[str, list[int]]:
    rollouts = [rollout for group in step.groups for rollout in group.rollouts]
    return {
        "prompt_tokens": sorted({len(rollout.prompt_ids) for rollout in rollouts}),
        "completion_tokens": sorted({len(rollout.completion_ids) for rollout in rollouts}),
    }


def make_engine(policy: Endless, config: Config) -> Engine:
    """Build the engine that the config names; vLLM also ignores the model's own stop id."""
    if config.engine.name == "transformers":
        return TransformersEngine(policy, config.engine.max_rows, lambda: None)
    from pods.engines.vllm_engine import VllmEngine

    class EndlessVllm(VllmEngine):
        def sampling_params(self, *settings: Any) -> Any:
            params = super().sampling_params(*settings)
            params.ignore_eos = True
            return params

    return EndlessVllm(policy, config, lambda: None)


def main(overrides: Sequence[str]) -> None:
    """Load, print the environment, and take a step per line of standard input."""
    from pods.runs.attempts import environment

    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print too
    config = configured(overrides)
    torch.set_num_threads(config.hardware.threads)
    policy = endless(load(config))
    task, prompts = pool(config, policy.tokenizer)
    engine = make_engine(policy, config)
    loop = make_loop(policy, config, engine, task, prompts)
    print(
        json.dumps({"threads": torch.get_num_threads(), **environment()}), file=answers, flush=True
    )
    for row in steps(loop, sys.stdin.readline):
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
