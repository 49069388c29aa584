"""What flows between the rooms: frozen records, complete when made.

A later fact (a reward, an advantage) is a new array beside a record, never a field filled in later.

Shapes: n = rollouts of one prompt, m = rollouts kept, T = completion tokens of one rollout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


VERDICTS = ("right", "wrong", "none", "refused", "timeout")
"""On an answer. none: there is not exactly one, closed, in the form asked for; refused: too long,
too deep or of a kind that is not graded; timeout: over its limit of work, time or memory."""


class Parts(NamedTuple):
    """What a reward is the sum of."""

    correct: float
    format: float = 0.0
    tags: float = 0.0


@dataclass(frozen=True, slots=True)
class Grade:
    """What one completion is worth."""

    verdict: str
    """On the answer, whatever the form around it: one of VERDICTS."""
    format: bool
    """The completion has the form that the prompt asked for."""
    parts: Parts
    """Of the reward, kept apart so that a figure can show each."""

    @property
    def reward(self) -> float:
        """What the policy is trained on."""
        return sum(self.parts)

    @property
    def correct(self) -> bool:
        """Say whether the answer is right."""
        return self.verdict == "right"


@dataclass(frozen=True, slots=True)
class Grader:
    """How the answers to one set of problems are graded."""

    grade: Callable[[str, str], Grade]
    """`grade(completion, gold)`: total, it never raises on any text."""
    ahead: Callable[[str, str], None] | None = None
    """`ahead(completion, gold)` begins in the background what `grade` will be asked for; None where
    a verdict takes microseconds."""
    lenient: Callable[[str, str], bool] | None = None
    """`lenient(completion, gold)`: the PODS authors' verdict; None where they have none."""

    def ready(self, problems: Sequence[Problem]) -> Callable[[int, str], None] | None:
        """What an engine that generates for these problems calls with every whole completion."""
        ahead = self.ahead
        if ahead is None:
            return None
        return lambda place, completion: ahead(completion, problems[place].gold)


@dataclass(frozen=True, slots=True)
class Task:
    """A numbered train pool, a disjoint test set, and how the answers to each are graded."""

    name: str
    train: tuple[Problem, ...]
    test: tuple[Problem, ...]
    grade: Callable[[str, str], Grade]
    """Of the train pool, as a `Grader` has it."""
    ahead: Callable[[str, str], None] | None = None
    """Of the train pool, too."""
    test_grader: Grader | None = None
    """Of the test set; None: as the train pool."""
    dropped: tuple[str, ...] = ()
    """Rows of the data that were left out, each with its reason."""

    @property
    def examiner(self) -> Grader:
        """Who grades the test set."""
        return self.test_grader or Grader(self.grade, self.ahead)

    def ready(self, problems: Sequence[Problem]) -> Callable[[int, str], None] | None:
        """What an engine that generates for train problems calls with every whole completion."""
        return Grader(self.grade, self.ahead).ready(problems)


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
