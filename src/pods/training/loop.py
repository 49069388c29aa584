"""The training loop, a generator: generate, grade, select, update, yield. The caller writes files.

Shapes: B = prompts per step, n = rollouts per group, m = rollouts kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.method.adaptive import Adaptive
from pods.method.allocation import allocate
from pods.method.group_filter import informative, next_batch
from pods.method.grpo import advantages
from pods.method.prompt_order import PromptOrder
from pods.method.prompt_selection import Selector
from pods.method.rules import Rule, RuleAcross, enough, is_across_groups, keep, keep_across
from pods.policy.update import UpdateStats
from pods.seeding import derive
from pods.tasks.rewards import grade_rollout
from pods.training.clock import TrainClock
from pods.training.step import SampledBatch, SelectedGroup, Step, amounts, by_prompt, noise, outcome
from pods.types import GenerationRequest, Grade, Group, Problem, Prompt, Rollout, Sampling, Task


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """Everything that a step needs, as arguments, so that tests can pass fakes."""

    config: Config
    task: Task
    prompts: Sequence[Prompt]
    """Token ids of each problem of the train pool."""
    engine: Engine
    """In a run the worker group of all processes, which implements this protocol."""
    rule: Rule | RuleAcross
    update: Callable[[list[Rollout], NDArray[np.float64], list[int], int], UpdateStats]
    """`update(rollouts, advantages, sizes, step)` applies a step's optimizer updates to groups of
    these sizes."""
    clock: TrainClock

    @property
    def order(self) -> PromptOrder:
        """The order in which problems come up."""
        return PromptOrder(self.config.seed, len(self.task.train))

    def steps(
        self, done: int, selector: Selector, adaptive: Adaptive | None = None
    ) -> Iterator[Step]:
        """Yield the steps after step `done` until the budget ends.

        Args:
            done: number of the last committed step.
            selector: state of prompt selection after it.
            adaptive: what an adaptive run knows after it; None: n and m stay as they are.
        """
        budget, number = self.config.budget, done
        while (budget.max_steps is None or number < budget.max_steps) and (
            budget.train_seconds is None or self.clock.train_seconds < budget.train_seconds
        ):
            number += 1
            step = self.step(number, selector, adaptive)
            selector, adaptive = step.selector, step.adaptive
            yield step

    def step(self, number: int, selector: Selector, adaptive: Adaptive | None = None) -> Step:
        """Take one step, in an adaptive run with the n and m that are chosen for it."""
        if adaptive is None:
            return self.fixed_step(number, selector)
        nm = self.config.nm
        with self.clock.phase("select"):
            adaptive = adaptive.choose(nm)
            n, m = nm.pairs()[adaptive.pair]
        sized = replace(self, config=replace(self.config, nm=replace(nm, n=n, m=m)))
        step = sized.fixed_step(number, selector)
        outcomes = [*map(outcome, by_prompt(step.groups, nm.groups))]
        seconds = sum(step.seconds.values())
        return replace(step, adaptive=adaptive.observe(outcomes, noise(step.groups), seconds))

    def fixed_step(self, number: int, selector: Selector) -> Step:
        """Generate and grade n rollouts per group, keep m of each, update the policy, sync."""
        config, clock = self.config, self.clock
        batches = self.sample(number, selector)
        groups = [group for batch in batches for group in batch.groups]
        selector, nonfinite = batches[-1].selector, batches[-1].nonfinite
        with clock.phase("select"):
            prompts = by_prompt(groups, config.nm.groups)
            if nonfinite is None:
                selector = selector.observe(self.order, list(map(outcome, prompts)), config.prompts)
                groups = self.choose_trained(prompts)
                if is_across_groups(self.rule):
                    groups = self.select_across(number, groups)
            else:
                groups = [replace(group, trained=False) for group in groups]
        with clock.phase("update"):
            trained = [group for group in groups if group.trained and len(group.kept)]
            rollouts = [group.rollouts[i] for group in trained for i in group.kept]
            stats = None
            if rollouts:
                try:
                    kept_advantages = np.concatenate([group.advantages for group in trained])
                    sizes = [len(group.kept) for group in trained]
                    stats = self.update(rollouts, kept_advantages, sizes, number)
                except FloatingPointError as error:
                    nonfinite = str(error)
        with clock.phase("sync"):
            kept_projection = self.engine.sync()
        seconds = clock.commit(amounts(groups))
        return Step(
            number=number,
            train_seconds=clock.train_seconds,
            seconds=seconds.wall,
            cpu_seconds=seconds.cpu,
            groups=groups,
            selector=selector,
            epoch=self.order.epoch(selector.position - 1),
            prompts=len(prompts),
            passed_over=sum(batch.chosen.passed_over for batch in batches),
            saved_prompts=sum(batch.chosen.saved_prompts for batch in batches),
            batches=len(batches),
            update=stats,
            kept_projection=kept_projection,
            nonfinite=nonfinite,
        )

    def choose_trained(self, prompts: list[Sequence[SelectedGroup]]) -> list[SelectedGroup]:
        """Return all groups, and mark those that the update uses as trained.

        Where the group filter resamples, B informative prompts are a full batch. Extra ones are
        discarded although they were generated, as in DAPO.
        """
        resample = self.config.group_filter.name == "resample"
        remaining = self.config.prompts_per_step if resample else len(prompts)
        chosen = list[SelectedGroup]()
        for groups in prompts:
            use = remaining > 0 and any(group.trained for group in groups)
            chosen += groups if use else [replace(group, trained=False) for group in groups]
            remaining -= use
        return chosen

    def select_across(self, number: int, groups: list[SelectedGroup]) -> list[SelectedGroup]:
        """Let a rule across groups choose from those that are trained on."""
        trained = [group for group in groups if group.trained]
        if not trained:
            return groups
        rng = np.random.default_rng(derive(self.config.seed, "rule", number))
        rule = cast(RuleAcross, self.rule)
        kept = iter(keep_across(rule, [g.group for g in trained], self.config.nm.m, rng))
        return [self._keep(group, next(kept)) if group.trained else group for group in groups]

    def _keep(self, group: SelectedGroup, kept: NDArray[np.intp]) -> SelectedGroup:
        return replace(group, kept=kept, advantages=self.advantages(group.group, kept))

    def advantages(self, group: Group, kept: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute the advantages of a group's kept rollouts as the config says."""
        advantage = self.config.advantage
        if not len(kept):
            return np.empty(0)
        return advantages(
            group.rewards,
            kept,
            baseline=advantage.baseline,
            scale=advantage.scale,
            ddof=advantage.ddof,
            eps=advantage.eps,
        )

    def sample(self, number: int, selector: Selector) -> list[SampledBatch]:
        """Sample one batch of prompts, or as many batches as a resampling group filter needs.

        A batch with a value that is not finite is the last: the step will not be applied.
        """
        config = self.config
        group_filter, wanted = config.group_filter, config.prompts_per_step
        resample = group_filter.name == "resample"
        size = (group_filter.batch or wanted) if resample else wanted
        informative_prompts, first_group, batches = 0, 0, list[SampledBatch]()
        while True:
            batch = self.batch(number, first_group, size, selector)
            batches.append(batch)
            selector, first_group = batch.selector, first_group + len(batch.groups)
            prompts = by_prompt(batch.groups, config.nm.groups)
            num_informative = sum(any(group.trained for group in groups) for groups in prompts)
            informative_prompts += num_informative
            enough = informative_prompts >= wanted or len(batches) == group_filter.max_batches
            if not resample or enough or batch.nonfinite is not None:
                return batches
            size = next_batch(
                group_filter, wanted, informative_prompts, len(prompts), num_informative
            )

    def batch(self, number: int, first_group: int, size: int, selector: Selector) -> SampledBatch:
        """Generate, grade and select for `size` prompts.

        `first_group` is the number of groups that earlier batches of the step hold.
        """
        config, clock = self.config, self.clock
        with clock.phase("select"):
            chosen, selector = selector.choose(self.order, size, config.prompts)
            indices = [index for index in chosen.problems for _ in range(config.nm.groups)]
        rollouts, grades, nonfinite = self.sample_rounds(number, first_group, indices)
        with clock.phase("select"):
            groups = [
                self.select(number, first_group + i, *parts, keep_rollouts=nonfinite is None)
                for i, parts in enumerate(zip(indices, rollouts, grades, strict=True))
            ]
        return SampledBatch(groups, chosen, selector, nonfinite)

    def sample_rounds(
        self, number: int, first_group: int, indices: Sequence[int]
    ) -> tuple[list[list[Rollout]], list[list[Grade]], str | None]:
        """Generate and grade rollouts of each group, in one round or in several.

        Args:
            number: of the step.
            first_group: number of groups of earlier batches of the step.
            indices: problem of each group.

        Returns:
            Rollouts and grades of each group, and what was NaN or infinite; no round follows then.
        """
        config, clock, grader = self.config, self.clock, self.task.train_grader
        nm, sampling = config.nm, config.sampling
        rollouts: list[list[Rollout]] = [[] for _ in indices]
        grades: list[list[Grade]] = [[] for _ in indices]
        rounds, active, sampled = [0] * len(indices), [*range(len(indices))], 0
        while True:
            problems = [self.task.train[indices[i]] for i in active]
            with clock.phase("generate"):
                seeds = list[int]()
                for i in active:  # a group may be there more than once
                    seeds.append(self.rollout_seed(number, first_group + i, rounds[i]))
                    rounds[i] += 1
                request = GenerationRequest(
                    [self.prompts[indices[i]] for i in active],
                    min(nm.round or nm.n, nm.n - sampled),
                    Sampling(sampling.temperature, sampling.max_completion_tokens),
                    seeds,
                )
                generated = self.engine.generate(request, grader.on_completion(problems))
            sampled += request.n
            with clock.phase("reward"):
                graded = [
                    [self.grade(rollout, problem) for rollout in of_prompt]
                    for problem, of_prompt in zip(problems, generated, strict=True)
                ]
                for i, some, their_grades in zip(active, generated, graded, strict=True):
                    rollouts[i] += some
                    grades[i] += their_grades
                nonfinite = _describe_nonfinite(generated, graded)
            if nonfinite is not None or sampled == nm.n:
                return rollouts, grades, nonfinite
            with clock.phase("select"):
                groups = {i: _group(rollouts[i], grades[i]) for i in active}
                active = self.next_round(groups, sampled)
            if not active:
                return rollouts, grades, None

    def next_round(self, groups: Mapping[int, Group], sampled: int) -> list[int]:
        """Return the groups of the next round; one that is there twice gets two rounds at once.

        Args:
            groups: those of the last round, by their index.
            sampled: rollouts per group, where each took part in every round.
        """
        nm = self.config.nm
        if nm.allocation == "equal":
            return [i for i, group in groups.items() if not enough(self.rule, group, nm.m)]
        if sampled != nm.round:  # the shared rounds are sampled at once
            return []
        left = len(groups) * (nm.n - sampled) // sampled
        counts = allocate(nm.allocation, [*groups.values()], nm.m, left)
        return [i for i, count in zip(groups, counts, strict=True) for _ in range(count)]

    def rollout_seed(self, number: int, group_index: int, number_of_round: int) -> int:
        """Return the seed of a group's rollouts in one round of a step."""
        later = (number_of_round,) if number_of_round else ()
        return derive(self.config.seed, "rollouts", number, group_index, *later)

    def grade(self, rollout: Rollout, problem: Problem) -> Grade:
        """Grade one rollout."""
        return grade_rollout(self.config, self.task, problem, rollout)

    def select(
        self,
        number: int,
        group_index: int,
        problem_index: int,
        rollouts: list[Rollout],
        grades: list[Grade],
        keep_rollouts: bool,
    ) -> SelectedGroup:
        """Keep m rollouts of one group, the `group_index`-th of the step, or none of them.

        A rule across groups chooses later, in `select_across`.
        """
        config = self.config
        group = _group(rollouts, grades)
        kept, kept_advantages, trained = np.empty(0, np.intp), np.empty(0), False
        if keep_rollouts and not is_across_groups(self.rule):
            rng = np.random.default_rng(derive(config.seed, "rule", number, group_index))
            kept = keep(cast(Rule, self.rule), group, config.nm.m, rng)
            kept_advantages = self.advantages(group, kept)
        if keep_rollouts:
            trained = config.group_filter.name == "none" or informative(
                group.rewards, group.correct, config.group_filter.metric
            )
        return SelectedGroup(
            problem_index=problem_index,
            problem=self.task.train[problem_index],
            rollouts=rollouts,
            grades=grades,
            group=group,
            kept=kept,
            advantages=kept_advantages,
            trained=trained,
        )


def _group(rollouts: Sequence[Rollout], grades: Sequence[Grade]) -> Group:
    """Make a group as a rule sees it."""
    return Group(
        np.array([grade.reward for grade in grades]),
        np.array([grade.rewarded for grade in grades]),
        np.array([len(rollout.completion_ids) for rollout in rollouts]),
        tuple(rollouts),
    )


def _describe_nonfinite(
    generated: Sequence[Sequence[Rollout]], graded: Sequence[Sequence[Grade]]
) -> str | None:
    """Describe the reward or log-prob of a batch that is NaN or infinite, if there is one."""
    if not all(math.isfinite(grade.reward) for grades in graded for grade in grades):
        return "a reward is NaN or infinite"
    if not all(np.isfinite(r.logprobs).all() for rollouts in generated for r in rollouts):
        return "a log-prob of the engine is NaN or infinite"
    return None
