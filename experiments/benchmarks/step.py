"""Steps of the real loop with completions of one fixed length, one for each line on standard input.

    seq 4 | python experiments/benchmarks/step.py [KEY=VALUE ...]        words as of src/run.py

`Loop.step` does all that it does in a run, and its own clock measures the phases; only that no
completion ends before the limit, and the grades, are the benchmark's. Prints a JSON line when all
is loaded and one a step, the first of which warms up. `against_trl.py` sets this beside TRL.
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

from pods.config import Config
from pods.method import prompts as selection
from pods.method.downsample import find_rule
from pods.method.walk import Walk
from pods.policy.load import Policy, load
from pods.policy.optimizer import make_optimizer
from pods.policy.update import update
from pods.records import Grade, Parts, Problem, Task
from pods.rollouts.engine import Engine, Prompt
from pods.rollouts.transformers_engine import TransformersEngine
from pods.runs.clock import TrainClock
from pods.step import Step
from pods.train import Loop

WORDS = ("sampler=all", "nm=n16_m16", "prompts_per_step=1", "tracking=none")
POOL = 100  # train problems: enough for a benchmark, and soon encoded


class Endless(Policy):
    """A policy that no id stops, so that every completion has `max_completion_tokens`."""

    @property
    def stop_ids(self) -> list[int]:
        """None."""
        return []


def endless(policy: Policy) -> Endless:
    """The same weights."""
    return Endless(policy.model, policy.tokenizer, policy.start)


def configured(words: Sequence[str]) -> Config:
    """What `src/run.py` would make of these words and the benchmark's own, which come first."""
    from pods.checks import build  # here: a GPU's script brings a config of its own
    from pods.compose import compose

    return build(compose([*WORDS, *words]))


def pool(config: Config, tokenizer: Any) -> tuple[Task, tuple[Prompt, ...]]:
    """The first train problems whose prompts fit, and the token ids of each."""
    from pods.tasks.load import load as load_task
    from pods.tasks.prompts import fitting

    task = load_task(config.task)
    limit = config.sampling.max_prompt_tokens
    problems, prompts, _ = fitting(task.train[:POOL], tokenizer, limit)
    return replace(task, train=problems), prompts


def order(config: Config, problems: Sequence[Problem], steps: int) -> list[Problem]:
    """The problems that the first so many steps take, one each."""
    walk = Walk(config.seed, len(problems))
    return [problems[walk.problem(place)] for place in range(steps)]


def make_loop(
    policy: Policy, config: Config, engine: Engine, task: Task, prompts: Sequence[Prompt]
) -> Loop:
    """Put the loop together as a run does; every other completion is right.

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
    return Loop(
        config=config,
        task=replace(task, grade=lambda text, gold: next(grades), ahead=None),
        prompts=prompts,
        engine=engine,
        rule=find_rule(config.sampler.rule),
        update=partial(update, policy, optimizer, config, check=lambda: None),
        clock=TrainClock(synchronise=torch.cuda.synchronize if on_gpu else lambda: None),
    )


def steps(loop: Loop, wait: Callable[[], object]) -> Iterator[dict[str, Any]]:
    """Take a step whenever `wait()` returns something true.

    Yields:
        seconds (wall, of all that the loop does), cpu_seconds (of all threads: close to threads x
        seconds only on a quiet machine), seconds of each phase, and the lengths of prompts and
        completions, each once.
    """
    selector, number = selection.start(loop.config.prompts), 0
    while wait():
        number += 1
        start, cpu = time.perf_counter(), time.process_time()
        made = loop.step(number, selector)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        selector = made.selector
        yield {"seconds": seconds, "cpu_seconds": cpu, **made.seconds, **_lengths(made)}


def _lengths(step: Step) -> dict[str, list[int]]:
    rollouts = [rollout for group in step.groups for rollout in group.rollouts]
    return {
        "prompt_tokens": sorted({len(rollout.prompt_ids) for rollout in rollouts}),
        "completion_tokens": sorted({len(rollout.completion_ids) for rollout in rollouts}),
    }


def make_engine(policy: Endless, config: Config) -> Engine:
    """The engine that the config names; vLLM knows the model's own stop id besides the policy's."""
    if config.engine.name == "transformers":
        return TransformersEngine(policy, config.engine.max_rows, lambda: None)
    from pods.rollouts.vllm_engine import VllmEngine

    class EndlessVllm(VllmEngine):
        def parameters(self, *settings: Any) -> Any:
            found = super().parameters(*settings)
            found.ignore_eos = True
            return found

    return EndlessVllm(policy, config, lambda: None)


def main(words: Sequence[str]) -> None:
    """Load, say so, and take steps for as long as lines come."""
    from pods.runs.environment import environment

    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print too
    config = configured(words)
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
