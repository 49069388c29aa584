"""The training loop, a generator: sample, score, keep, update, yield. The caller writes.

Shapes: B = prompts of a step, n = rollouts of a group, m = kept of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pods.config import Config
from pods.method.downsample import Rule, keep
from pods.method.group_filter import informative, next_batch
from pods.method.objective import advantages
from pods.method.prompts import Selector
from pods.method.walk import Walk
from pods.policy.update import UpdateStats
from pods.randomness import derive
from pods.records import Grade, Group, Rollout, Sampling, Task
from pods.rollouts.engine import Engine, Prompt
from pods.runs.clock import TrainClock
from pods.step import Sample, Selected, Step, by_prompt, outcome


@dataclass(frozen=True, slots=True)
class Loop:
    """Everything a step needs, as arguments: tests pass fakes."""

    config: Config
    task: Task
    prompts: Sequence[Prompt]
    """Token ids of each problem of the train pool."""
    engine: Engine
    rule: Rule
    update: Callable[[list[Rollout], NDArray[np.float64], int], UpdateStats]
    """`update(rollouts, advantages, step)` moves the weights."""
    clock: TrainClock

    @property
    def walk(self) -> Walk:
        """The order in which problems come up."""
        return Walk(self.config.seed, len(self.task.train))

    def steps(self, done: int, selector: Selector) -> Iterator[Step]:
        """Yield the steps after step `done`, and what was known then, until the budget ends."""
        budget = self.config.budget
        step = done
        while not (
            (budget.max_steps is not None and step >= budget.max_steps)
            or (
                budget.train_seconds is not None
                and self.clock.train_seconds >= budget.train_seconds
            )
        ):
            step += 1
            made = self.step(step, selector)
            selector = made.selector
            yield made

    def step(self, step: int, selector: Selector) -> Step:
        """Sample prompts and n rollouts a group, score, keep m of each group, update."""
        config, clock = self.config, self.clock
        samples = self.sample(step, selector)
        groups = [group for sample in samples for group in sample.groups]
        selector, nonfinite = samples[-1].selector, samples[-1].nonfinite
        with clock.phase("select"):
            prompts = by_prompt(groups, config.nm.groups)
            if nonfinite is None:
                selector = selector.observe(self.walk, list(map(outcome, prompts)), config.prompts)
            groups = self.to_train_on(prompts, nothing=nonfinite is not None)
        with clock.phase("update"):
            trained = [group for group in groups if group.trained]
            rollouts = [group.rollouts[i] for group in trained for i in group.kept]
            signs = np.concatenate([group.advantages for group in trained] or [np.empty(0)])
            try:
                stats = self.update(rollouts, signs, step) if rollouts else None
            except FloatingPointError as error:
                stats, nonfinite = None, str(error)
        with clock.phase("sync"):
            kept = self.engine.sync()
        seconds = clock.commit()
        return Step(
            step, clock.train_seconds, seconds, groups, selector,
            self.walk.epoch(selector.place - 1), len(prompts),
            sum(sample.chosen.passed_over for sample in samples),
            sum(sample.chosen.spared for sample in samples), len(samples), stats, kept, nonfinite,
        )  # fmt: skip

    def to_train_on(self, prompts: list[Sequence[Selected]], nothing: bool) -> list[Selected]:
        """The groups of all prompts; where the group filter resamples, B prompts are a full batch.

        What is informative beyond it has been paid for and is left out, as in DAPO.
        """
        room = len(prompts)
        if self.config.group_filter.name == "resample":
            room = self.config.prompts_per_step
        made = list[Selected]()
        for groups in prompts:
            fit = any(group.trained for group in groups)
            use = fit and room > 0 and not nothing
            made += groups if use else [replace(group, trained=False) for group in groups]
            room -= use
        return made

    def sample(self, step: int, selector: Selector) -> list[Sample]:
        """One batch of prompts; where the group filter resamples, until enough are informative.

        A batch that is not finite is the last: the step will not be applied.
        """
        config = self.config
        setting, wanted = config.group_filter, config.prompts_per_step
        resample = setting.name == "resample"
        size = (setting.batch or wanted) if resample else wanted
        have, slot, samples = 0, 0, list[Sample]()
        while True:
            sample = self.batch(step, slot, size, selector)
            samples.append(sample)
            selector, slot = sample.selector, slot + len(sample.groups)
            prompts = by_prompt(sample.groups, config.nm.groups)
            fruitful = sum(any(group.trained for group in groups) for groups in prompts)
            have += fruitful
            full = not resample or have >= wanted or len(samples) == setting.max_batches
            if full or sample.nonfinite is not None:
                return samples
            size = next_batch(setting, wanted, have, len(prompts), fruitful)

    def batch(self, step: int, slot: int, size: int, selector: Selector) -> Sample:
        """Generate and grade `size` prompts in one call; `slot` groups of the step were before."""
        config, clock = self.config, self.clock
        with clock.phase("select"):
            chosen, selector = selector.choose(self.walk, size, config.prompts)
            places = [place for place in chosen.problems for _ in range(config.nm.groups)]
            problems = [self.task.train[place] for place in places]
        with clock.phase("generate"):
            generated = self.engine.generate(
                [self.prompts[place] for place in places],
                config.nm.n,
                Sampling(config.sampling.temperature, config.sampling.max_completion_tokens),
                [derive(config.seed, "rollouts", step, slot + i) for i in range(len(places))],
                self.task.ready(problems),
            )
        with clock.phase("reward"):
            graded = [
                [self.task.grade(rollout.text, problem.gold) for rollout in rollouts]
                for problem, rollouts in zip(problems, generated, strict=True)
            ]
        with clock.phase("select"):
            nonfinite = _nonfinite(generated, graded)
            groups = [
                self.select(step, slot + i, *parts, nothing=nonfinite is not None)
                for i, parts in enumerate(zip(places, generated, graded, strict=True))
            ]
        return Sample(groups, chosen, selector, nonfinite)

    def select(
        self,
        step: int,
        slot: int,
        place: int,
        rollouts: list[Rollout],
        grades: list[Grade],
        nothing: bool,
    ) -> Selected:
        """Keep m of one group's rollouts, or nothing; `slot` is the group's place in the step."""
        config, problem = self.config, self.task.train[place]
        group = Group(
            np.array([grade.reward for grade in grades]),
            np.array([grade.correct for grade in grades]),
            np.array([len(rollout.completion_ids) for rollout in rollouts]),
        )
        if nothing:
            none = np.empty(0, np.intp)
            return Selected(place, problem, rollouts, grades, group, none, np.empty(0), False)
        rng = np.random.default_rng(derive(config.seed, "rule", step, slot))
        kept = keep(self.rule, group, config.nm.m, rng)
        scale = config.advantage
        signs = advantages(group.rewards, kept, over=scale.over, ddof=scale.ddof, eps=scale.eps)
        trained = config.group_filter.name == "none" or informative(
            group.rewards, group.correct, config.group_filter.metric
        )
        return Selected(place, problem, rollouts, grades, group, kept, signs, trained)


def _nonfinite(
    generated: Sequence[Sequence[Rollout]], graded: Sequence[Sequence[Grade]]
) -> str | None:
    """What of a step's rewards and log-probs is NaN or infinite, in words."""
    if not all(math.isfinite(grade.reward) for grades in graded for grade in grades):
        return "a reward is NaN or infinite"
    if not all(np.isfinite(r.logprobs).all() for rollouts in generated for r in rollouts):
        return "a log-prob of the engine is NaN or infinite"
    return None
