"""A training loop with a fake task, engine, update and clock."""

from dataclasses import replace
from itertools import count

import numpy as np
from compose import composed

from pods.config.schema import BudgetConfig
from pods.method.rules import max_variance
from pods.policy.update_stats import UpdateStats
from pods.training import schedule
from pods.training.clock import TrainClock
from pods.training.loop import TrainingLoop
from pods.training.step import RunState
from pods.types import Grade, Grader, Parts, Problem, Rollout, Task

PROBLEMS = tuple(Problem(f"p{i}", ({"role": "user", "content": str(i)},), str(i)) for i in range(5))


def grade(text, gold):
    return Grade("right" if text == "1" else "wrong", True, Parts(float(text)))


TASK = Task(PROBLEMS, PROBLEMS, Grader(grade), Grader(grade))


class FakeEngine:
    """Completions 0 and 1 in turn for even prompts, always 0 for odd ones.

    It notes its calls, and tells each completion where it is asked to.
    """

    def __init__(self):
        self.calls = []

    def generate(self, request, on_completion=None):
        self.calls.append((list(request.prompts), request.n, request.sampling, list(request.seeds)))
        groups = [[self.rollout(prompt, i) for i in range(request.n)] for prompt in request.prompts]
        for place, group in enumerate(groups if on_completion else ()):
            for rollout in group:
                on_completion(place, rollout.text)
        return groups

    @staticmethod
    def rollout(prompt, i):
        text = str(i % 2) if prompt[0] % 2 == 0 else "0"
        return Rollout(prompt, (1,) * (i + 1), np.zeros(i + 1, np.float32), text, True)

    def sync(self):
        pass


def loop(*overrides, seconds=0.5):
    tick, updates = seconds / 16, []  # eight phases, two readings each
    clock = TrainClock(count(tick, tick).__next__)

    def update(rollouts, advantages, sizes, step):
        assert sum(sizes) == len(rollouts) and set(sizes) == {config.nm.m}
        updates.append((rollouts, advantages, step))
        return UpdateStats(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5, 1e-4)

    config = composed("nm.n=4", "nm.m=2", "prompts_per_step=2", *overrides)
    prompts = [(i,) for i in range(5)]
    made = TrainingLoop(
        config=config, task=TASK, prompts=prompts, engine=FakeEngine(), rule=max_variance,
        update=update, clock=clock,
    )  # fmt: skip
    return made, updates


def steps_of(made, done, selector, pending=()):
    """The steps after `done` of a loop, from what is known by then."""
    return schedule.steps(made, done, RunState(selector, pending))


def take_step(made, number, selector, pending=()):
    """One step of a loop, whatever its budget."""
    config = replace(made.config, budget=BudgetConfig(None, number))
    [step] = steps_of(replace(made, config=config), number - 1, selector, pending)
    return step
