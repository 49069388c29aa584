"""What flows between the rooms: frozen records, complete when made.

A later fact (a reward, an advantage) is a new array beside a record, never a field filled in later.

Shapes: n = rollouts of one prompt, m = rollouts kept, T = completion tokens of one rollout.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Message = Mapping[str, str]
"""One chat turn: `role` and `content`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its answer; `id` is unique in its data set and stable across runs."""

    id: str
    messages: tuple[Message, ...]
    gold: str


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one completion, parts kept apart so that a figure can show each."""

    reward: float
    """What the policy is trained on."""
    correct: bool
    """The answer is right, whatever its form."""
    format: bool
    """The completion has the form that the prompt asked for."""


@dataclass(frozen=True, slots=True)
class Task:
    """A numbered train pool, a disjoint test set and the function that grades a completion."""

    name: str
    train: tuple[Problem, ...]
    test: tuple[Problem, ...]
    grade: Callable[[str, str], Grade]
    """`grade(completion, gold)`: total, it never raises on any text."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion as token ids; nothing is ever tokenised twice."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """(T,) sampled ids, T >= 1, the end-of-sequence id included where it was sampled."""
    logprobs: NDArray[np.float32]
    """(T,) log-probability of each id under the distribution that it was sampled from."""
    text: str
    finished: bool
    """False where the length limit cut the completion."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a down-sampling rule may look at: the n rollouts of one prompt."""

    rewards: NDArray[np.float64]
    """(n,)"""
    correct: NDArray[np.bool_]
    """(n,)"""
    lengths: NDArray[np.int64]
    """(n,) completion tokens."""

    def __post_init__(self) -> None:
        """Freeze the arrays too."""
        for array in (self.rewards, self.correct, self.lengths):
            array.setflags(write=False)  # a rule that sorts in place must not change the rewards


@dataclass(frozen=True, slots=True)
class Sampling:
    """Plain temperature sampling, so that log-probs are those of the policy."""

    temperature: float
    """0 is greedy."""
    max_completion_tokens: int
