"""One training step's records, and the way from graded rollouts to those that are trained on.

Shapes: n = rollouts of a group, at most nm.n; m = rollouts kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pods.config.method_keys import AdvantageConfig
from pods.config.schema import Config
from pods.method.adaptive import Adaptive, gradient_noise
from pods.method.grpo import advantages
from pods.method.keep import informative, keep
from pods.method.prompt_order import Outcome
from pods.method.prompt_selection import Selector
from pods.method.rules import Rule, RuleAcross, is_across_groups
from pods.policy.update import UpdateStats
from pods.seeding import derive
from pods.types import Grade, Group, Problem, Rollout, group_of


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """One group, its grades, and the rollouts that the rule kept."""

    problem_index: int
    """Index of the problem in the train pool."""
    problem: Problem
    grades: list[Grade]
    group: Group
    kept: NDArray[np.intp]
    """(m,) indices into the rollouts; of a rule across groups any number, also none."""
    advantages: NDArray[np.float64]
    """(m,) advantages of the kept rollouts."""
    trained: bool
    """True where the update uses the group; the group filter or a full batch can leave it out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a step has sampled so far, from one batch of prompts or several."""

    prompts: list[list[SelectedGroup]]
    """The groups of each prompt."""
    selector: Selector
    """State of prompt selection after the last choice."""
    batches: int = 0
    """Batches of prompts: more than one only where the group filter resamples."""
    passed_over: int = 0
    """Number of problems that came up and that prompt selection skipped."""
    saved_prompts: int = 0
    """Number of skipped problems that a uniform selector would have sampled."""
    nonfinite: str | None = None
    """The value that was NaN or infinite; then nothing is kept and the step is not applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One committed step."""

    number: int
    """1 for the first step of the run."""
    train_seconds: float
    """The training clock at the end of the step."""
    seconds: dict[str, float]
    """Of the step, by phase."""
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """The same in CPU seconds of this process; empty under a clock for tests."""
    groups: list[SelectedGroup]
    """`nm.groups` groups per prompt, prompt after prompt."""
    selector: Selector
    """State of prompt selection after the step."""
    sample: Sample
    """All that was sampled, whether trained on or not, before the rules across groups."""
    epoch: int
    """Number of whole epochs before the step's last prompt."""
    update: UpdateStats | None
    """None where no group was left to train on, or the step was not applied."""
    kept_projection: float | None = None
    """Kept projection: fraction of the weights' change since the start of training that survives
    rounding to the engine's dtype; None if the engine shares the weights or holds an adapter."""
    nonfinite: str | None = None
    """The value that was NaN or infinite, so that the step was not applied."""
    adaptive: Adaptive | None = None
    """What an adaptive run knows after the step, and the pair that it took."""


def select(
    config: Config,
    rule: Rule | RuleAcross | None,
    number: int,
    group_index: int,
    m: int,
    problem_index: int,
    problem: Problem,
    rollouts: list[Rollout],
    grades: list[Grade],
) -> SelectedGroup:
    """Keep m of the n rollouts of the `group_index`-th group of step `number`.

    None as a rule (a value is not finite) keeps nothing. A rule across groups keeps its m later.
    """
    group = group_of(rollouts, grades)
    kept, group_filter = np.empty(0, np.intp), config.group_filter
    if rule is not None and not is_across_groups(rule):
        rng = np.random.default_rng(derive(config.seed, "rule", number, group_index))
        (kept,) = keep(rule, [group], m, rng)
    passes = group_filter.name == "none" or informative(
        group.rewards, group.rewarded, group_filter.metric
    )
    return SelectedGroup(
        problem_index=problem_index,
        problem=problem,
        grades=grades,
        group=group,
        kept=kept,
        advantages=advantages_of(config.advantage, group, kept),
        trained=rule is not None and passes,
    )


def choose_trained(
    config: Config, rule: Rule | RuleAcross, number: int, sample: Sample, m: int
) -> list[SelectedGroup]:
    """Return all groups of a step, and mark those that the update uses as trained.

    Where the group filter resamples, `prompts_per_step` informative prompts are a full batch. Extra
    ones are discarded although they were generated, as in DAPO. A rule across groups then chooses.
    """
    resample = config.group_filter.name == "resample"
    remaining = config.prompts_per_step if resample else len(sample.prompts)
    if sample.nonfinite is not None:
        remaining = 0
    groups = list[SelectedGroup]()
    for of_prompt in sample.prompts:
        use = remaining > 0 and any(group.trained for group in of_prompt)
        groups += of_prompt if use else [replace(group, trained=False) for group in of_prompt]
        remaining -= use
    trained = [i for i, group in enumerate(groups) if group.trained]
    if trained and is_across_groups(rule):
        rng = np.random.default_rng(derive(config.seed, "rule", number))
        of_trained = [groups[i].group for i in trained]
        kept_of_each = keep(rule, of_trained, m, rng)
        for i, kept in zip(trained, kept_of_each, strict=True):
            scaled = advantages_of(config.advantage, groups[i].group, kept)
            groups[i] = replace(groups[i], kept=kept, advantages=scaled)
    return groups


def advantages_of(
    config: AdvantageConfig, group: Group, kept: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the advantages of a group's kept rollouts, (m,)."""
    if not len(kept):
        return np.empty(0)
    return advantages(
        group.rewards, kept, baseline=config.baseline, scale=config.scale, eps=config.eps
    )


def describe_nonfinite(
    generated: Sequence[Sequence[Rollout]], graded: Sequence[Sequence[Grade]]
) -> str | None:
    """Describe the reward or log-prob of a batch that is NaN or infinite, if there is one."""
    if not all(math.isfinite(grade.reward) for grades in graded for grade in grades):
        return "a reward is NaN or infinite"
    if not all(np.isfinite(r.logprobs).all() for rollouts in generated for r in rollouts):
        return "a log-prob of the engine is NaN or infinite"
    return None


def amounts(groups: Sequence[SelectedGroup]) -> dict[str, int]:
    """Count the rollouts and tokens of a step, by their names in metrics.jsonl."""
    trained = [group for group in groups if group.trained]
    return {
        "generated_rollouts": sum(len(group.group.rewards) for group in groups),
        "trained_rollouts": sum(len(group.kept) for group in trained),
        "generated_tokens": sum(int(group.group.lengths.sum()) for group in groups),
        "trained_tokens": sum(int(group.group.lengths[group.kept].sum()) for group in trained),
    }


def outcome(groups: Sequence[SelectedGroup]) -> Outcome:
    """Summarise the results of all groups of one prompt."""
    rewards = np.concatenate([group.group.rewards for group in groups])
    right = int(sum(group.group.rewarded.sum() for group in groups))
    return Outcome(
        groups[0].problem_index, right, len(rewards), bool(rewards.min() == rewards.max())
    )


def noise(groups: Sequence[SelectedGroup]) -> list[float]:
    """Sum the gradient noise of the right rollouts and count them, then of the wrong ones."""
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    each = gradient_noise([rollout.logprobs for rollout in rollouts])
    right = np.concatenate([group.group.rewarded for group in groups])
    sides = (each[right], each[~right])
    return [float(number) for side in sides for number in (side.sum(), len(side))]
