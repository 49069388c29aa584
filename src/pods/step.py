"""What a step of training is made of, from one group of rollouts to the whole.

Shapes: n = rollouts of a group, m = kept of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pods.method.group_filter import informative
from pods.method.prompts import Selector
from pods.method.walk import Chosen, Outcome
from pods.policy.update import UpdateStats
from pods.records import Grade, Group, Problem, Rollout


@dataclass(frozen=True, slots=True)
class Selected:
    """One group's rollouts, their grades, and what the rule kept of them."""

    place: int
    """Of the problem in the train pool."""
    problem: Problem
    rollouts: list[Rollout]
    grades: list[Grade]
    group: Group
    kept: NDArray[np.intp]
    """(m,) indices into the rollouts."""
    advantages: NDArray[np.float64]
    """(m,) of the kept."""
    trained: bool
    """False where the group filter, or a full batch, took the group out of the update."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Prompts that were sampled in one call."""

    groups: list[Selected]
    chosen: Chosen
    selector: Selector
    nonfinite: str | None
    """What was NaN or infinite: then nothing was kept, and the step is not to be applied."""


@dataclass(frozen=True, slots=True)
class Step:
    """One committed step, 1 for the first."""

    step: int
    train_seconds: float
    """The training clock at its end."""
    seconds: dict[str, float]
    """By phase."""
    groups: list[Selected]
    """`nm.groups` of each prompt, prompt after prompt."""
    selector: Selector
    """What prompt selection knows after the step."""
    epoch: int
    """How often the whole pool had come up before the step's last prompt."""
    prompts: int
    """Sampled, trained on or not."""
    passed_over: int
    """Problems that came up and that prompt selection did not take."""
    spared: int
    """Of them, those that a uniform choice would have spent rollouts on."""
    batches: int
    """Samplings: more than one only where the group filter resamples."""
    update: UpdateStats | None
    """None where no group was left to train on, or the step was not applied."""
    kept_projection: float | None = None
    """Share of training's change that reached the engine's weights; None where it has the policy's
    own, or an adapter."""
    nonfinite: str | None = None
    """What was NaN or infinite, so that the step was not applied."""


def by_prompt(groups: Sequence[Selected], size: int) -> list[Sequence[Selected]]:
    """Groups in the order of their prompts, `size` of each, prompt by prompt."""
    return [groups[i : i + size] for i in range(0, len(groups), size)]


def outcome(groups: Sequence[Selected]) -> Outcome:
    """How all groups of one prompt fared."""
    rewards = np.concatenate([group.group.rewards for group in groups])
    correct = np.concatenate([group.group.correct for group in groups])
    alike = not informative(rewards, correct, "reward")
    return Outcome(groups[0].place, int(correct.sum()), len(rewards), alike)


def zero_variance(group: Group) -> bool:
    """Say whether all n rewards are equal, so that, normalised, none has an advantage."""
    return not informative(group.rewards, group.correct, "reward")
