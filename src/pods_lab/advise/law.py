"""The law of n and m for other rules and advantages than max-variance's; README.md derives it.

Shapes: n = rollouts of a group, m = rollouts kept of it.
"""

from collections.abc import Callable
from functools import cache
from math import comb

import numpy as np

from pods.method import grpo
from pods.method.rules import max_variance
from pods.types import Floats
from pods_lab.advise.progress import Moments

Shares = Callable[[int, int, int], Floats]
"""`shares(n, m, right)`, (m + 1,): the chances that 0, 1, ..., m of the kept rollouts are right."""


def half(n: int, m: int, right: int) -> Floats:
    """Return the chances of max-variance and balanced rules: as near to m / 2 as can be."""
    rewards = (np.arange(n) < right).astype(float)
    return np.asarray(np.eye(m + 1)[int(rewards[max_variance(rewards, m)].sum())])


def at_random(n: int, m: int, right: int) -> Floats:
    """Return the chances of a random choice, hypergeometric; of n = m, what all rules keep.

    >>> at_random(4, 2, 2).round(3)
    array([0.167, 0.667, 0.167])
    """
    ways = [comb(right, kept) * comb(n - right, m - kept) for kept in range(m + 1)]
    return np.array(ways) / comb(n, m)


def moments_of(shares: Shares, baseline: str, scale: str) -> Moments:
    """Return the moments of a rule with the advantages of `pods.method.grpo.advantages`.

    Right rollouts have the advantage a, wrong ones -b, and the mean gradients (1 - p) d and -p d:
    the signal is (1 - p) f a + p (1 - f) b, where p is taken as the share of right ones of the n.
    """

    @cache
    def moments(n: int, m: int) -> Floats:
        total = np.zeros((4, n + 1))
        for right in range(n + 1):
            rewards = (np.arange(n) < right).astype(float)
            for number, chance in enumerate(shares(n, m, right)):
                if chance > 0:
                    kept = np.r_[np.arange(number), n - 1 - np.arange(m - number)]
                    scaled = grpo.advantages(rewards, kept, baseline=baseline, scale=scale, eps=0.0)
                    total[:, right] += chance * _moments(rewards[kept], scaled, right / n)
        return total

    return moments


def _moments(rewards: Floats, advantages: Floats, rate: float) -> Floats:
    """Return signal, its square and the noise of right and of wrong ones of m kept rollouts."""
    m = len(rewards)
    signal = ((rewards - rate) * advantages).sum() / m
    right_noise = (advantages[rewards == 1] ** 2).sum() / m**2
    wrong_noise = (advantages[rewards == 0] ** 2).sum() / m**2
    return np.array([signal, signal**2, right_noise, wrong_noise])
