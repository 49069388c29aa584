"""The order in which problems come up, and what a prompt selector takes from it and is told back.

Shapes: B = prompts that are asked for, P = problems in the train pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pods.randomness import derive


@dataclass(frozen=True, slots=True)
class Walk:
    """An endless walk through the pool: a fresh permutation each epoch.

    >>> walk = Walk(seed=0, pool=3)
    >>> sorted(walk.problem(place) for place in range(3, 6)), walk.epoch(5)
    ([0, 1, 2], 1)
    """

    seed: int
    pool: int
    """Problems in the train pool (P)."""

    def problem(self, place: int) -> int:
        """The problem at a place of the walk, 0 for the first."""
        epoch, within = divmod(place, self.pool)
        return int(_order(self.seed, epoch, self.pool)[within])

    def epoch(self, place: int) -> int:
        """How often the whole pool has come up before a place."""
        return place // self.pool

    def draws(self, purpose: str, place: int) -> np.random.Generator:
        """Random numbers that belong to a place, so that no generator's state need be kept."""
        return np.random.default_rng(derive(self.seed, purpose, place))


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, pool: int) -> NDArray[np.intp]:
    return np.random.default_rng(derive(seed, "prompt order", epoch)).permutation(pool)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a selector takes."""

    problems: Sequence[int]
    """(B,) places in the pool; fewer only where the pool has no more to offer."""
    passed_over: int = 0
    """Problems that came up and were not taken."""
    spared: int = 0
    """Of them, those that a uniform choice would have spent rollouts on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the rollouts of one prompt fared, all its groups together."""

    problem: int
    right: int
    rollouts: int
    zero_variance: bool
    """All their rewards are equal."""
