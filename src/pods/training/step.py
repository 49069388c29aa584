"""The records of a training step, and how graded rollouts become those that are trained on.

Shapes: n = rollouts of a group, m = rollouts kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.method.grpo import advantages
from pods.method.keep import informative, keep, own_advantages
from pods.method.prompt_order import ChosenPrompts, Outcome
from pods.method.prompt_selection import Selector
from pods.method.rules import Rule, RuleAcross, all_equal, is_across_groups
from pods.policy.update_stats import UpdateStats
from pods.seeding import derive
from pods.training.clock import StepSeconds
from pods.types import Grade, Group, Problem, Rollout, group_of


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A rollout that was generated and has no reward."""

    position: int  # among all rollouts of its group, from 0
    rollout: Rollout
    grade: Grade


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """One group, its grades, and the rollouts that the rule kept; none before the rule is asked."""

    problem_index: int  # index of the problem in the train pool
    problem: Problem
    grades: list[Grade]
    group: Group
    kept: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    """(m,) indices into the rollouts; a rule across groups keeps any number, or none."""
    advantages: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """(m,) advantages of the kept rollouts."""
    trained: bool = False
    """True if the update is to use the group: the group filter lets it pass, and in the end
    `choose_trained` has room for it in the batch."""
    left_out: list[LeftOut] = field(default_factory=list)
    """Rollouts without a reward, which are neither in `group` nor in `grades`."""

    @property
    def generated(self) -> int:
        """The number of rollouts that were generated, with a reward or without."""
        return len(self.grades) + len(self.left_out)

    def positions(self) -> list[int]:
        """Return the position of each rollout of `group` among those that were generated."""
        without = {left.position for left in self.left_out}
        return [position for position in range(self.generated) if position not in without]


@dataclass(frozen=True, slots=True)
class Sample:
    """What has been sampled for one step, from one batch of prompts or several."""

    prompts: list[list[SelectedGroup]]  # the groups of each prompt
    selector: Selector  # state of prompt selection after the last choice
    chosen: tuple[ChosenPrompts, ...] = ()
    """The prompts of each batch: more than one batch only if the group filter resamples."""
    nonfinite: str | None = None
    """The value that was NaN or infinite: the last batch keeps nothing, and no update is made."""
    gap: float | None = None
    """Mean difference between the log-probs of an engine that has its own weights and those of the
    policy that it had them from, for some rollouts (`engine_gap`); None without `engine.lag`."""


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run knows between two steps, apart from weights, optimizer and clock."""

    selector: Selector  # state of prompt selection
    pending: Sequence[Sample] = ()  # under `engine.lag`, the samples of the steps to come


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One committed step."""

    number: int  # 1 for the first step of the run
    train_seconds: float  # the training clock at the end of the step
    seconds: StepSeconds
    groups: list[SelectedGroup]  # `nm.groups` groups per prompt, prompt after prompt
    state: RunState  # what the run knows after the step
    sample: Sample  # all that was sampled, trained on or not, before the rules across groups
    epoch: int  # number of whole epochs before the step's last prompt
    update: UpdateStats | None  # None if nothing was left to train on, or it was not applied
    kept_projection: float | None = None
    """Kept projection: fraction of the weights' change since the start of training that survives
    rounding to the engine's dtype; None if the engine shares the weights or holds an adapter."""
    nonfinite: str | None = None  # what was NaN or infinite, so that the step was not applied


def graded_group(
    index: int, problem: Problem, rollouts: Sequence[Rollout], grades: Sequence[Grade]
) -> SelectedGroup:
    """Make a group of the rollouts that have a reward, beside those that have none.

    `index` is the problem's in the train pool.
    """
    scored = [i for i, grade in enumerate(grades) if grade.scored]
    kept_grades = [grades[i] for i in scored]
    return SelectedGroup(
        problem_index=index,
        problem=problem,
        grades=kept_grades,
        group=group_of([rollouts[i] for i in scored], kept_grades),
        left_out=[
            LeftOut(i, rollout, grade)
            for i, (rollout, grade) in enumerate(zip(rollouts, grades, strict=True))
            if not grade.scored
        ],
    )


def describe_nonfinite(groups: Sequence[SelectedGroup]) -> str | None:
    """Describe the reward or log-prob of a batch that is NaN or infinite, if there is one."""
    if not all(np.isfinite(group.group.rewards).all() for group in groups):
        return "a reward is NaN or infinite"
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    if not all(np.isfinite(rollout.logprobs).all() for rollout in rollouts):
        return "a log-prob of the engine is NaN or infinite"
    return None


def select(
    config: Config, rule: Rule | RuleAcross, number: int, index: int, graded: SelectedGroup
) -> SelectedGroup:
    """Keep m of the n rollouts of the `index`-th group of step `number`, and ask the group filter.

    If fewer have a reward, all of them are kept, and of none the group is not trained on. A rule
    across groups keeps its m later, in `choose_trained`.
    """
    group = graded.group
    if len(group.rewards) == 0:
        return graded
    if not is_across_groups(rule):
        rng = np.random.default_rng(derive(config.seed, "rule", number, index))
        [kept] = keep(rule, [group], min(config.nm.m, len(group.rewards)), rng)
        graded = with_kept(config, graded, kept)

    group_filter = config.group_filter
    differ = informative(group.rewards, group.rewarded, group_filter.metric)
    return replace(graded, trained=differ or group_filter.name == "none")


def choose_trained(
    config: Config, rule: Rule | RuleAcross, number: int, sample: Sample
) -> list[SelectedGroup]:
    """Return all groups of a step, and mark those that the update uses as trained.

    If the group filter resamples, `prompts_per_step` informative prompts are a full batch. Extra
    ones are discarded although they were generated, as in DAPO. A rule across groups then chooses.
    """
    room = config.prompts_per_step if config.group_filter.resamples else len(sample.prompts)
    if sample.nonfinite is not None:
        room = 0

    groups: list[SelectedGroup] = []
    for prompt_groups in sample.prompts:
        if room > 0 and any(group.trained for group in prompt_groups):
            groups += prompt_groups
            room -= 1
        else:
            groups += [replace(group, trained=False) for group in prompt_groups]

    if is_across_groups(rule):
        _keep_across(config, rule, number, groups)
    return groups


def _keep_across(
    config: Config, rule: Rule | RuleAcross, number: int, groups: list[SelectedGroup]
) -> None:
    """Replace each trained group by one with what a rule across groups kept of it."""
    trained = [i for i, group in enumerate(groups) if group.trained]
    if not trained:
        return
    rng = np.random.default_rng(derive(config.seed, "rule", number))
    kept_by_group = keep(rule, [groups[i].group for i in trained], config.nm.m, rng)
    for i, kept in zip(trained, kept_by_group, strict=True):
        groups[i] = with_kept(config, groups[i], kept)


def with_kept(config: Config, group: SelectedGroup, kept: NDArray[np.intp]) -> SelectedGroup:
    """Return the group with what a rule kept of it, and the advantages of that."""
    if len(kept) == 0:
        return group
    settings = config.advantage
    if settings.function is not None:
        scaled = own_advantages(settings.function, group.group, kept)
    else:
        scaled = advantages(
            group.group.rewards,
            kept,
            baseline=settings.baseline,
            scale=settings.scale,
            eps=settings.eps,
        )

    return replace(group, kept=kept, advantages=scaled)


def amounts(groups: Sequence[SelectedGroup]) -> dict[str, int]:
    """Count the rollouts and tokens of a step, by their names in metrics.jsonl."""
    trained = [group for group in groups if group.trained]
    return {
        "generated_rollouts": sum(group.generated for group in groups),
        "trained_rollouts": sum(len(group.kept) for group in trained),
        "generated_tokens": sum(
            int(group.group.lengths.sum())
            + sum(len(left.rollout.completion_ids) for left in group.left_out)
            for group in groups
        ),
        "trained_tokens": sum(int(group.group.lengths[group.kept].sum()) for group in trained),
    }


def outcome(groups: Sequence[SelectedGroup]) -> Outcome:
    """Summarise the results of all groups of one prompt, of which some rollout has a reward."""
    rewards = np.concatenate([group.group.rewards for group in groups])
    right = sum(int(group.group.rewarded.sum()) for group in groups)
    return Outcome(
        problem=groups[0].problem_index,
        right=right,
        rollouts=len(rewards),
        zero_variance=all_equal(rewards),
    )
