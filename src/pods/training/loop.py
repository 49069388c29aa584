"""The training loop: sample from the policy, grade, select, update. The caller writes files.

`collect`, `observe` and `learn` are the parts of a step; `schedule.py` puts them in order. All
processes of a run execute this. The main one grades and selects, and the clock is its clock.

Shapes: n = rollouts per group, m = rollouts kept of them. A prompt has `nm.groups` groups, by
default one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.method.keep import next_batch
from pods.method.prompt_order import ChosenPrompts, PromptOrder
from pods.method.prompt_selection import Selector
from pods.method.rules import Rule, RuleAcross
from pods.policy.process_group import SINGLE_PROCESS, ProcessGroup
from pods.policy.update_stats import UpdateStats
from pods.seeding import derive
from pods.tasks.rewards import grade_rollouts
from pods.training.clock import TrainClock
from pods.training.shapes import prompts_per_batch
from pods.training.step import (
    RunState,
    Sample,
    SelectedGroup,
    Step,
    choose_trained,
    describe_nonfinite,
    graded_group,
    outcome,
    select,
)
from pods.types import GenerationRequest, Prompt, Rollout, Sampling, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """Everything that a step needs, as arguments, so that tests can pass fakes."""

    config: Config
    task: Task
    prompts: Sequence[Prompt]  # token ids of each problem of the train pool
    engine: Engine
    rule: Rule | RuleAcross  # of one group, or across all groups of a step
    update: Callable[[list[Rollout], NDArray[np.float64], list[int], int], UpdateStats]
    """`update(rollouts, advantages, sizes, step)` makes a step's optimizer updates. The groups have
    these sizes, and stay whole in minibatches. The step decides the learning rate."""
    clock: TrainClock
    gap: Callable[[list[Rollout]], float] | None = None
    """`gap(rollouts)` measures how far log-probs of engine and policy differ, for `schedule.py`
    under a lag; None: it is not asked for."""
    process_group: ProcessGroup = SINGLE_PROCESS

    @property
    def order(self) -> PromptOrder:
        """The order in which problems come up."""
        return PromptOrder(self.config.seed, len(self.task.train))

    def numbers(self, done: int) -> Iterator[int]:
        """Yield the number of each step after `done` until the budget ends."""
        number = done
        while not self.config.budget.is_spent(number, self.clock.train_seconds):
            number += 1
            yield number

    def collect(self, number: int, selector: Selector) -> Sample:
        """Choose prompts, generate n rollouts per group, grade them and keep m.

        This is one batch of prompts, or as many as a group filter that resamples needs. A batch
        with a value that is not finite is the last: the step will not be applied.
        """
        size = prompts_per_batch(self.config)
        sample = Sample(prompts=[], selector=selector)
        while size > 0:
            before = len(sample.prompts)
            sample = self.add_batch(number, sample, size)
            size = self.further_prompts(sample, before)

        return sample

    def add_batch(self, number: int, sample: Sample, size: int) -> Sample:
        """Choose `size` prompts; generate, grade and select for each of their groups."""
        per_prompt = self.config.nm.groups
        first_group = len(sample.prompts) * per_prompt  # its number in the step, for its seeds

        with self.clock.phase("select"):
            chosen, selector = self.process_group.on_main(self.choose, sample.selector, size)
        problems = [index for index in chosen.problems for _ in range(per_prompt)]
        rollouts = self.generate(number, first_group, problems)
        # graders have time limits and rules are anybody's code: two processes might differ
        graded = self.grade(problems, rollouts) if self.process_group.is_main else []
        with self.clock.phase("select"):
            groups, nonfinite = self.process_group.on_main(
                self.select_groups, number, first_group, graded
            )

        prompts = [groups[i : i + per_prompt] for i in range(0, len(groups), per_prompt)]
        return Sample(
            prompts=[*sample.prompts, *prompts],
            selector=selector,
            chosen=(*sample.chosen, chosen),
            nonfinite=nonfinite,
        )

    def choose(self, selector: Selector, size: int) -> tuple[ChosenPrompts, Selector]:
        """Choose the next `size` prompts."""
        return selector.choose(self.order, size)

    def generate(
        self, number: int, first_group: int, problems: Sequence[int]
    ) -> list[list[Rollout]]:
        """Draw n rollouts for each group, whose problems are indices in the train pool."""
        settings = self.config.sampling
        request = GenerationRequest(
            prompts=[self.prompts[index] for index in problems],
            n=self.config.nm.n,
            sampling=Sampling(
                temperature=settings.temperature,
                max_completion_tokens=settings.max_completion_tokens,
                top_k=settings.top_k,
            ),
            seeds=[
                derive(self.config.seed, "rollouts", number, first_group + place)
                for place in range(len(problems))
            ],
        )
        asked = [self.task.train[index] for index in problems]
        with self.clock.phase("generate"):
            return self.engine.generate(request, self.task.train_grader.on_completion(asked))

    def grade(
        self, problems: Sequence[int], rollouts: Sequence[Sequence[Rollout]]
    ) -> list[SelectedGroup]:
        """Grade the rollouts of all groups at once."""
        n = self.config.nm.n
        asked = [self.task.train[index] for index in problems]
        with self.clock.phase("reward"):
            each = [problem for problem in asked for _ in range(n)]
            flat = [rollout for group_rollouts in rollouts for rollout in group_rollouts]
            grades = grade_rollouts(self.config, self.task, each, flat)
            return [
                graded_group(index, problem, group_rollouts, grades[n * place : n * (place + 1)])
                for place, (index, problem, group_rollouts) in enumerate(
                    zip(problems, asked, rollouts, strict=True)
                )
            ]

    def select_groups(
        self, number: int, first_group: int, graded: Sequence[SelectedGroup]
    ) -> tuple[list[SelectedGroup], str | None]:
        """Keep m rollouts of each group, the first of which is number `first_group` of the step.

        Returns:
            The groups, and the reward or log-prob that is NaN or infinite, if there is one; then
            nothing is kept.
        """
        nonfinite = describe_nonfinite(graded)
        if nonfinite is not None:
            return list(graded), nonfinite
        groups = [
            select(self.config, self.rule, number, index, group)
            for index, group in enumerate(graded, first_group)
        ]
        return groups, None

    def further_prompts(self, sample: Sample, before: int) -> int:
        """Return how many prompts to sample next: 0 unless a group filter resamples.

        The latest batch begins at index `before` of the sample's prompts.
        """
        group_filter = self.config.group_filter
        wanted = self.config.prompts_per_step
        informative = [any(group.trained for group in groups) for groups in sample.prompts]
        have = sum(informative)

        is_last = not group_filter.resamples or len(sample.chosen) == group_filter.max_batches
        if is_last or have >= wanted or sample.nonfinite is not None:
            return 0
        latest = informative[before:]
        return next_batch(group_filter, wanted, have, len(latest), sum(latest))

    def observe(self, selector: Selector, sample: Sample) -> Selector:
        """Tell prompt selection how the sampled prompts were solved.

        Under a lag `selector` has chosen later prompts since; it is newer than the sample's.
        """
        if sample.nonfinite is not None:
            return selector
        with self.clock.phase("select"):
            outcomes = [
                outcome(groups)
                for groups in sample.prompts
                if any(group.grades for group in groups)  # of the others nothing is known
            ]
            return selector.observe(self.order, outcomes)

    def learn(self, number: int, sample: Sample, state: RunState) -> Step:
        """Update the policy on what was kept, bring it into the engine, and commit the clock.

        `state` is what the run knows after the step.
        """
        with self.clock.phase("select"):
            groups = self.process_group.on_main(
                choose_trained, self.config, self.rule, number, sample
            )
        with self.clock.phase("update"):
            stats, fault = self.update_policy(number, groups)
        with self.clock.phase("sync"):
            kept_projection = self.engine.sync()
        seconds = self.clock.commit()
        self.clock.train_seconds = self.process_group.broadcast(self.clock.train_seconds)

        return Step(
            number=number,
            train_seconds=self.clock.train_seconds,
            seconds=seconds,
            groups=groups,
            state=state,
            sample=sample,
            epoch=self.order.epoch(sample.selector.position - 1),
            update=stats,
            kept_projection=kept_projection,
            nonfinite=sample.nonfinite or fault,
        )

    def update_policy(
        self, number: int, groups: Sequence[SelectedGroup]
    ) -> tuple[UpdateStats | None, str | None]:
        """Update the policy on what is kept of the groups that are trained on.

        Returns:
            Statistics if the update was applied, and what was NaN or infinite, if anything.
        """
        trained = [group for group in groups if group.trained]
        rollouts = [group.group.rollouts[i] for group in trained for i in group.kept]
        if not rollouts:
            return None, None
        advantages = np.concatenate([group.advantages for group in trained])
        sizes = [len(group.kept) for group in trained]
        try:
            return self.update(rollouts, advantages, sizes, number), None
        except FloatingPointError as error:  # on all processes: the sums of all are checked
            return None, str(error)
