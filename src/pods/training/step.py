"""The records of one training step, from one group of rollouts to the whole step.

Shapes: n = rollouts of a group, at most nm.n; m = rollouts kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pods.method.adaptive import Adaptive, gradient_noise
from pods.method.group_filter import informative
from pods.method.prompt_order import ChosenPrompts, Outcome
from pods.method.prompt_selection import Selector
from pods.policy.update import UpdateStats
from pods.types import Grade, Group, Problem, Rollout


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """The rollouts of one group, their grades, and the ones that the rule kept."""

    problem_index: int
    """Index of the problem in the train pool."""
    problem: Problem
    rollouts: list[Rollout]
    grades: list[Grade]
    group: Group
    kept: NDArray[np.intp]
    """(m,) indices into the rollouts; of a rule across groups any number, also none."""
    advantages: NDArray[np.float64]
    """(m,) advantages of the kept rollouts."""
    trained: bool
    """True where the update uses the group; the group filter or a full batch can leave it out."""


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The groups of the prompts that were chosen together."""

    groups: list[SelectedGroup]
    chosen: ChosenPrompts
    selector: Selector
    """State of prompt selection after the choice."""
    nonfinite: str | None
    """The value that was NaN or infinite; then nothing is kept and the step is not applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One committed step."""

    number: int
    """1 for the first step of the run."""
    train_seconds: float
    """The training clock at the end of the step."""
    seconds: dict[str, float]
    """Seconds of the step by phase."""
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the step by phase, of this process; empty under a clock for tests."""
    groups: list[SelectedGroup]
    """`nm.groups` groups per prompt, prompt after prompt."""
    selector: Selector
    """State of prompt selection after the step."""
    epoch: int
    """Number of whole epochs before the step's last prompt."""
    prompts: int
    """Number of prompts sampled, whether trained on or not."""
    passed_over: int
    """Number of problems that came up and that prompt selection skipped."""
    saved_prompts: int
    """Number of skipped problems that a uniform selector would have sampled."""
    batches: int
    """Batches of prompts: more than one only where the group filter resamples."""
    update: UpdateStats | None
    """None where no group was left to train on, or the step was not applied."""
    kept_projection: float | None = None
    """Kept projection: fraction of the weights' change since the start of training that survives
    rounding to the engine's dtype; None if the engine shares the weights or holds an adapter."""
    nonfinite: str | None = None
    """The value that was NaN or infinite, so that the step was not applied."""
    adaptive: Adaptive | None = None
    """What an adaptive run knows after the step, and the pair that it took."""


def amounts(groups: Sequence[SelectedGroup]) -> dict[str, int]:
    """Count the rollouts and tokens of a step, by their names in metrics.jsonl."""
    trained = [group for group in groups if group.trained]
    return {
        "generated_rollouts": sum(len(group.group.rewards) for group in groups),
        "trained_rollouts": sum(len(group.kept) for group in trained),
        "generated_tokens": sum(int(group.group.lengths.sum()) for group in groups),
        "trained_tokens": sum(int(group.group.lengths[group.kept].sum()) for group in trained),
    }


def by_prompt(groups: Sequence[SelectedGroup], size: int) -> list[Sequence[SelectedGroup]]:
    """Split groups into those of each prompt, `size` groups per prompt."""
    return [groups[i : i + size] for i in range(0, len(groups), size)]


def outcome(groups: Sequence[SelectedGroup]) -> Outcome:
    """Summarise the results of all groups of one prompt."""
    rewards = np.concatenate([group.group.rewards for group in groups])
    correct = np.concatenate([group.group.correct for group in groups])
    zero_variance = not informative(rewards, correct, "reward")
    return Outcome(groups[0].problem_index, int(correct.sum()), len(rewards), zero_variance)


def noise(groups: Sequence[SelectedGroup]) -> list[float]:
    """Sum the gradient noise of the right rollouts and count them, then of the wrong ones."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    each = gradient_noise([rollout.logprobs for rollout in rollouts])
    right = np.concatenate([group.group.correct for group in groups])
    sides = (each[right], each[~right])
    return [float(number) for side in sides for number in (side.sum(), len(side))]


def zero_variance(group: Group) -> bool:
    """Return whether all n rewards are equal, so that normalised advantages are all 0."""
    return not informative(group.rewards, group.correct, "reward")
