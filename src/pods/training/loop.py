"""The training loop, a generator: generate, grade, select, update, yield. The caller writes files.

Shapes: n = rollouts per group, m = rollouts kept.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.method.keep import next_batch
from pods.method.prompt_order import PromptOrder
from pods.method.prompt_selection import Selector
from pods.method.rules import Rule, RuleAcross
from pods.policy.update import UpdateStats
from pods.seeding import derive
from pods.tasks.rewards import grade_rollout
from pods.training.clock import TrainClock
from pods.training.step import Sample, SelectedGroup, Step, amounts, choose_trained, outcome, select
from pods.types import GenerationRequest, Prompt, Rollout, Sampling, Task, group_of

GAP_ROLLOUTS = 4  # of a sample, or one of each process that generates if those are more


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """Everything that a step needs, as arguments, so that tests can pass fakes."""

    config: Config
    task: Task
    prompts: Sequence[Prompt]  # token ids of each problem of the train pool
    engine: Engine  # in a run the worker group of those that generate, which has this protocol
    rule: Rule | RuleAcross
    update: Callable[[list[Rollout], NDArray[np.float64], list[int], int], UpdateStats]
    """`update(rollouts, advantages, sizes, step)` applies a step's optimizer updates to groups of
    these sizes."""
    clock: TrainClock
    beside: Callable[[], AbstractContextManager[None]] | None = None
    """A context in which other processes sample for this one; None: the same ones do both."""
    gap: Callable[[list[Rollout]], list[float]] | None = None
    """Of rollouts that were just drawn, by each process; None: `Sample.gap` is not asked for."""

    @property
    def order(self) -> PromptOrder:
        """The order in which problems come up."""
        return PromptOrder(self.config.seed, len(self.task.train))

    def steps(
        self, done: int, selector: Selector, pending: Sequence[Sample] = ()
    ) -> Iterator[Step]:
        """Yield the steps after `done`, the last committed one, until the budget ends.

        `selector` and `pending` are as that step left them.
        """
        budget, number = self.config.budget, done
        while (budget.max_steps is None or number < budget.max_steps) and (
            budget.train_seconds is None or self.clock.train_seconds < budget.train_seconds
        ):
            number += 1
            step = self.take_step(number, selector, pending)
            selector, pending = step.selector, step.pending
            yield step

    def take_step(
        self, number: int, selector: Selector, pending: Sequence[Sample] = ()
    ) -> Step:
        """Sample n rollouts per group, keep m of each, update the policy, sync the engine.

        Under `engine.lag` it trains on the oldest `pending` sample, whose results prompt selection
        sees only now, and samples for a later step.
        """
        config, clock, queue = self.config, self.clock, [*pending]
        while len(queue) < max(1, config.engine.lag):
            queue.append(self.collect(number + len(queue), selector))
            selector = queue[-1].selector
        sample, *queue = queue
        with clock.phase("select"):
            outcomes = [*map(outcome, sample.prompts)]
            if sample.nonfinite is None:
                selector = selector.observe(self.order, outcomes)
            groups = choose_trained(config, self.rule, number, sample)
        with self.sampling_ahead(number, selector) as newest:
            with clock.phase("update"):
                stats, fault = self.update_on(groups, number)
            queue += newest()
        with clock.phase("sync"):
            kept_projection = self.engine.sync()
        seconds = clock.commit(amounts(groups))
        return Step(
            number=number, train_seconds=clock.train_seconds, seconds=seconds, groups=groups,
            sample=sample, selector=queue[-1].selector if queue else selector, pending=queue,
            epoch=self.order.epoch(sample.selector.position - 1), update=stats,
            kept_projection=kept_projection, nonfinite=sample.nonfinite or fault,
        )  # fmt: skip

    @contextmanager
    def sampling_ahead(
        self, number: int, selector: Selector
    ) -> Iterator[Callable[[], list[Sample]]]:
        """Under `engine.lag`, collect the sample of a later step, before the block.

        Where other processes generate, that is done beside the block, with the same results. Yield
        a function that waits for the sample, and raises what collecting it has raised.
        """
        ahead = number + self.config.engine.lag
        if self.beside is None or self.clock.beside is None:
            samples = [self.collect(ahead, selector)] if ahead > number else []
            yield lambda: samples
            return
        elsewhere = replace(self, clock=self.clock.beside)
        with ThreadPoolExecutor(1) as thread, self.beside():
            sampled = thread.submit(elsewhere.collect, ahead, selector)

            def wait() -> list[Sample]:
                with self.clock.phase("generate"):
                    return [sampled.result()]

            yield wait

    def collect(self, number: int, selector: Selector) -> Sample:
        """Generate, grade and select one batch, or as many as a resampling group filter needs.

        A batch with a value that is not finite is the last: the step will not be applied.
        """
        group_filter, wanted = self.config.group_filter, self.config.prompts_per_step
        size = (group_filter.batch or wanted) if group_filter.resamples else wanted
        sample = Sample([], selector)
        while True:
            before = len(sample.prompts)
            sample = self.add_batch(sample, number, size)
            informative = [any(group.trained for group in groups) for groups in sample.prompts]
            have, latest = sum(informative), informative[before:]
            enough = have >= wanted or len(sample.chosen) == group_filter.max_batches
            if not group_filter.resamples or enough or sample.nonfinite is not None:
                return self.with_gap(sample)
            size = next_batch(group_filter, wanted, have, len(latest), sum(latest))

    def with_gap(self, sample: Sample) -> Sample:
        """Return a sample that knows its gap, measured on some of its rollouts."""
        if self.gap is None or sample.nonfinite is not None:
            return sample
        drawn = [each for of in sample.prompts for group in of for each in group.group.rollouts]
        engines = self.config.hardware.generators or self.config.hardware.processes
        count = max(GAP_ROLLOUTS, engines)
        some = [drawn[(2 * i + 1) * len(drawn) // (2 * count)] for i in range(count)]
        with self.clock.phase("generate"):
            return replace(sample, gap=max(self.gap(some)))

    def add_batch(self, sample: Sample, number: int, size: int) -> Sample:
        """Choose `size` prompts; generate, grade and select for each of their groups."""
        config, clock, per_prompt = self.config, self.clock, self.config.nm.groups
        first_group = len(sample.prompts) * per_prompt
        with clock.phase("select"):
            chosen, selector = sample.selector.choose(self.order, size)
            problems = [problem for problem in chosen.problems for _ in range(per_prompt)]
        groups = self.generate_and_grade(number, first_group, problems)
        nonfinite = describe_nonfinite(groups)
        with clock.phase("select"):
            if nonfinite is None:
                graded = enumerate(groups, first_group)
                groups = [select(config, self.rule, number, i, group) for i, group in graded]
        prompts = [groups[i : i + per_prompt] for i in range(0, len(groups), per_prompt)]
        return Sample([*sample.prompts, *prompts], selector, (*sample.chosen, chosen), nonfinite)

    def generate_and_grade(
        self, number: int, first_group: int, problems: Sequence[int]
    ) -> list[SelectedGroup]:
        """Generate and grade the rollouts of one group for each of the problems, in order."""
        config, train, settings = self.config, self.task.train, self.config.sampling
        sampling = Sampling(settings.temperature, settings.max_completion_tokens, settings.top_k)
        with self.clock.phase("generate"):
            prompts = [self.prompts[index] for index in problems]
            seeds = [
                derive(config.seed, "rollouts", number, first_group + i)
                for i in range(len(problems))
            ]
            request = GenerationRequest(prompts, config.nm.n, sampling, seeds)
            asked = [train[index] for index in problems]
            rollouts = self.engine.generate(request, self.task.train_grader.on_completion(asked))
        groups = list[SelectedGroup]()
        with self.clock.phase("reward"):
            for index, of_group in zip(problems, rollouts, strict=True):
                problem = train[index]
                grades = [grade_rollout(config, self.task, problem, each) for each in of_group]
                groups.append(SelectedGroup(index, problem, grades, group_of(of_group, grades)))
        return groups

    def update_on(
        self, groups: Sequence[SelectedGroup], number: int
    ) -> tuple[UpdateStats | None, str | None]:
        """Update the policy on what is kept of the groups that are trained on.

        Return statistics, if it was applied, and what was NaN or infinite, if anything.
        """
        trained = [group for group in groups if group.trained]
        rollouts = [group.group.rollouts[i] for group in trained for i in group.kept]
        if not rollouts:
            return None, None
        kept_advantages = np.concatenate([group.advantages for group in trained])
        try:
            sizes = [len(group.kept) for group in trained]
            return self.update(rollouts, kept_advantages, sizes, number), None
        except FloatingPointError as error:
            return None, str(error)


def describe_nonfinite(groups: Sequence[SelectedGroup]) -> str | None:
    """Describe the reward or log-prob of a batch that is NaN or infinite, if there is one."""
    if not all(np.isfinite(group.group.rewards).all() for group in groups):
        return "a reward is NaN or infinite"
    if not all(np.isfinite(r.logprobs).all() for group in groups for r in group.group.rollouts):
        return "a log-prob of the engine is NaN or infinite"
    return None
