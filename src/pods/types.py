"""The records that flow between the packages: frozen, and complete when they are made.

A later fact (a reward, an advantage) is a new array or a new record, never a field filled in later.

Shapes: n = rollouts of one prompt, m = rollouts kept, T = completion tokens of one rollout.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Message = Mapping[str, str]  # one chat turn: `role` and `content`
Prompt = tuple[int, ...]  # token ids of a prompt, rendered and tokenised
OnCompletion = Callable[[int, str], None]
"""`on_completion(index, completion)`: the index of the prompt in the request, and the text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its answer; the id is unique in its data set and stable across runs."""

    id: str
    messages: tuple[Message, ...]
    gold: str
    opened: str = ""  # the thought that the model's prompt opens, such as "<think>\n"

    @property
    def question(self) -> str:
        """The question as the model is asked it."""
        return self.messages[-1]["content"]


VERDICTS = ("right", "wrong", "none", "refused", "timeout")
"""Verdicts on an answer. none: the completion does not hold exactly one complete answer in the
requested format; refused: the answer is too long, too deep or of a kind that is not graded;
timeout: grading it took more work, time or memory than allowed."""


class Parts(NamedTuple):
    """The parts that a reward is the sum of."""

    correct: float
    format: float = 0.0
    tags: float = 0.0
    overlong: float = 0.0  # at most 0: what a completion loses by its length


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one completion."""

    verdict: str  # verdict on the answer, whatever the form around it: one of VERDICTS
    format: bool  # True if the completion has the form that the prompt asks for
    parts: Parts
    terms: Mapping[str, float] | None = None  # weighted terms of `task.reward`; None: sum of parts
    scored: bool = True
    """False if the completion has no reward: its functions gave None, or one of them failed."""

    @property
    def reward(self) -> float:
        """The number that the policy is trained on; NaN if there is none."""
        if not self.scored:
            return math.nan
        if self.terms is None:
            return sum(self.parts)
        return sum(self.terms.values()) + self.parts.overlong

    @property
    def correct(self) -> bool:
        """Whether the answer is right."""
        return self.verdict == "right"

    @property
    def rewarded(self) -> bool:
        """Whether the answer is right by the grader that decides the reward."""
        return self.parts.correct > 0


@dataclass(frozen=True, slots=True)
class Grader:
    """The functions that grade the answers to one set of problems.

    A completion is what the model wrote, after what its prompt had `opened`.
    """

    grade: Callable[[str, str], Grade]
    """`grade(completion, gold)` grades one completion; it never raises, whatever the text."""
    prefetch: Callable[[str, str], None] | None = None
    """`prefetch(completion, gold)` starts in the background the work that `grade` will ask for;
    None if a verdict takes microseconds."""
    lenient: Callable[[str, str], bool] | None = None
    """`lenient(completion, gold)` is the PODS authors' verdict (of their one-GPU runs, or with
    `task.grader=latex` of their 8-GPU runs); None if they have none."""

    def on_completion(self, problems: Sequence[Problem]) -> OnCompletion | None:
        """Return a callback for an engine that generates for `problems`, or None if not needed."""
        prefetch = self.prefetch
        if prefetch is None:
            return None

        def on_completion(index: int, completion: str) -> None:
            problem = problems[index]
            prefetch(problem.opened + completion, problem.gold)

        return on_completion


@dataclass(frozen=True, slots=True)
class Task:
    """A train pool, a disjoint test set, and the graders of both."""

    train: tuple[Problem, ...]
    test: tuple[Problem, ...]
    train_grader: Grader
    test_grader: Grader
    dropped: tuple[str, ...] = ()  # rows of the data that were left out, each with its reason
    own_reward: "OwnReward | None" = None  # if `task.reward` is set


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion as token ids; nothing is ever tokenised twice."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]  # (T,), T >= 1, with the end-of-sequence id if it was sampled
    logprobs: NDArray[np.float32]
    """(T,) log-probability of each id at the temperature of its sampling, or at 1 if that is
    greedy: among all ids, also if `top_k` lets few be drawn."""
    text: str
    finished: bool  # False if the length limit cut the completion off


class Graded(NamedTuple):
    """One completion of a batch, and the grade of its answer."""

    problem: Problem
    rollout: Rollout
    grade: Grade


OwnReward = Callable[[Sequence[Graded]], list[Grade]]
"""Adds the terms of `task.reward` to the grades of a batch."""


@dataclass(frozen=True, slots=True)
class Group:
    """The n rollouts of one prompt, as a down-sampling rule sees them.

    Those without a reward are left out, so that n may be less than `nm.n`.
    """

    rewards: NDArray[np.float64]  # (n,) rewards
    rewarded: NDArray[np.bool_]  # (n,) right by the grader that decides the reward
    lengths: NDArray[np.int64]  # (n,) completion tokens
    rollouts: Sequence[Rollout] = ()  # (n,) the rollouts themselves, for a rule that looks at more

    def __post_init__(self) -> None:
        for array in (self.rewards, self.rewarded, self.lengths):
            array.setflags(write=False)  # a rule that sorts in place must not change the rewards


def group_of(rollouts: Sequence[Rollout], grades: Sequence[Grade]) -> Group:
    """Make a group as a rule sees it."""
    return Group(
        rewards=np.array([grade.reward for grade in grades], np.float64),
        rewarded=np.array([grade.rewarded for grade in grades], np.bool_),
        lengths=np.array([len(rollout.completion_ids) for rollout in rollouts], np.int64),
        rollouts=tuple(rollouts),
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of sampling; `Rollout.logprobs` says what log-probs they lead to."""

    temperature: float  # 0 is greedy decoding
    max_completion_tokens: int
    top_k: int | None = None  # draw each token from so many, the likeliest; None: from all


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One call of an engine: n completions of every prompt."""

    prompts: Sequence[Prompt]
    n: int
    sampling: Sampling
    seeds: Sequence[int]  # one per prompt; the same request and seeds give the same completions
    rows: range | None = None  # which of all completions in order this process draws; None: all

    def drawn(self) -> range:
        """Return which of all completions, in their order, are to be drawn."""
        if self.rows is not None:
            return self.rows
        return range(len(self.prompts) * self.n)
