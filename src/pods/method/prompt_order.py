"""The order in which problems come up, and the records that prompt selectors exchange with it.

Shapes: B = prompts that are asked for, P = problems in the train pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pods.seeding import derive


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """An endless order of the train pool: a fresh permutation per epoch, fixed by the seed.

    >>> order = PromptOrder(seed=0, pool=3)
    >>> sorted(order.problem(position) for position in range(3, 6)), order.epoch(5)
    ([0, 1, 2], 1)
    """

    seed: int
    pool: int  # number of problems in the train pool (P)

    def problem(self, position: int) -> int:
        """Return the index in the pool of the problem at a position, 0 for the first."""
        epoch, within = divmod(position, self.pool)
        return int(_permutation(self.seed, epoch, self.pool)[within])

    def epoch(self, position: int) -> int:
        """Return how many whole epochs come before a position."""
        return position // self.pool

    def candidates(self, start: int, end: int) -> list[int]:
        """Return the problems at some positions, each once, also across an epoch's end."""
        return list(dict.fromkeys(self.problem(position) for position in range(start, end)))

    def rng(self, purpose: str, position: int) -> np.random.Generator:
        """Make the random generator of a position: no generator state is ever saved."""
        return np.random.default_rng(derive(self.seed, purpose, position))


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, pool: int) -> NDArray[np.intp]:
    return np.random.default_rng(derive(seed, "prompt order", epoch)).permutation(pool)


@dataclass(frozen=True, slots=True)
class ChosenPrompts:
    """The problems that a selector takes."""

    problems: Sequence[int]  # (B,) indices in the pool; fewer only if it has no more to offer
    passed_over: int = 0  # number of problems that came up and were not taken
    saved_prompts: int = 0  # those among them that a uniform selector would have sampled


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of all rollouts of one prompt, over all its groups."""

    problem: int  # index in the pool
    right: int  # number of rollouts that the deciding grader rewards
    rollouts: int
    zero_variance: bool  # true if all rewards are equal
