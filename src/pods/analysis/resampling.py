"""Exact rearrangement tests and the bootstrap over whole runs, which assume no normal distribution.

In a simulation with 8 normal runs (tests/test_statistics.py) the 95 % percentile bootstrap interval
of a mean covers the true mean in only 89 % of the cases. Means therefore get a t interval first;
the bootstrap serves statistics that have none, such as a ratio of medians.

Shapes: S = runs of an arm, or pairs; D = resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pods.analysis.statistics import ALPHA, Floats

Indices = NDArray[np.intp]
MOST_PAIRS = 20  # all 2^20 sign patterns are enumerated; scipy.stats takes seconds from 17 on
MOST_ARRANGEMENTS = 200_000  # of the runs of two arms; 10 and 10 have 184,756
RANDOM_ARRANGEMENTS = 19_999
ROUNDING = 1e-9  # relative: sums that differ by less are equal


@dataclass(frozen=True)
class ExactTest:
    """Two-sided p of a rearrangement test."""

    p: float
    smallest: float
    """The smallest p that this number of runs can give, whatever their outcomes."""
    drawn: float
    """Number of random arrangements; 0: all were enumerated, and p is exact."""


def sign_flip(differences: Floats, seed: int = 0) -> ExactTest:
    """Test paired differences: under the null each sign is as likely as the other (Fisher 1935).

    All 2^S sign patterns are enumerated. Above S = 20 random ones are drawn and the observed
    pattern is added to them, so that p is valid and never 0 (Phipson & Smyth 2010).

    >>> sign_flip(np.array([1.0, 2.0, 3.0])).p  # 2 of 8 patterns sum to 6 or -6
    0.25
    """
    size = np.abs(differences)
    least = abs(differences.sum()) - ROUNDING * size.sum()
    if len(size) <= MOST_PAIRS:
        sums = np.zeros(1)
        for one in size:
            sums = np.concatenate([sums + one, sums - one])
        return ExactTest(float((np.abs(sums) >= least).mean()), 2 / len(sums), 0)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (RANDOM_ARRANGEMENTS, len(size)))
    return _randomized(np.abs(signs @ size) >= least)


def permutation(ours: Floats, theirs: Floats, seed: int = 0) -> ExactTest:
    """Test the difference of two means: under the null any run could be of either arm.

    p is the share of arrangements with at least the observed absolute difference. (scipy.stats
    doubles the smaller tail instead, which differs where the arms have unequal numbers of runs.)
    All C(a + b, a) arrangements are enumerated, or random ones drawn above 200,000.

    >>> permutation(np.array([1.0, 2.0]), np.array([3.0, 4.0])).p  # 2 of 6
    0.3333333333333333
    """
    few, many = sorted((ours, theirs), key=len)
    pooled = np.concatenate([few, many])
    pooled = pooled - pooled.mean()  # now the sum over one arm determines the difference
    least = abs(pooled[: len(few)].sum()) - ROUNDING * np.abs(pooled).sum()
    count = round(special.binom(len(pooled), len(few)))
    if count <= MOST_ARRANGEMENTS:
        extreme = np.abs(_subset_sums(pooled, len(few))) >= least
        mirrored = len(few) == len(many)  # each difference occurs with both signs
        return ExactTest(float(extreme.mean()), (2 if mirrored else 1) / count, 0)
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(pooled, (RANDOM_ARRANGEMENTS, 1)), axis=1)
    return _randomized(np.abs(shuffled[:, : len(few)].sum(1)) >= least)


def _subset_sums(values: Floats, size: int) -> Floats:
    """Sum every subset of this size, by letting one value after the other join or not."""
    sums = [np.zeros(1)] + [np.zeros(0)] * size  # by how many have joined
    for value in values:
        for joined in range(size, 0, -1):
            sums[joined] = np.concatenate([sums[joined], sums[joined - 1] + value])
    return sums[size]


def _randomized(extreme: NDArray[np.bool_]) -> ExactTest:
    count = len(extreme) + 1
    return ExactTest((int(extreme.sum()) + 1) / count, 1 / count, len(extreme))


def resamples(sizes: Sequence[int], draws: int, seed: int) -> list[Indices]:
    """Draw whole runs with replacement: (D, S) indices for each size S. Pairs are one size."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, size, (draws, size)) for size in sizes]


def percentile_interval(values: Floats) -> tuple[float, float]:
    """Compute the 95 % percentile bootstrap interval of (D,) values (Efron 1979).

    Values may be infinite. A NaN could have been any number, so it counts as the lowest value for
    the lower end and as the highest for the upper end.
    """
    lowest = np.where(np.isnan(values), -np.inf, values)
    highest = np.where(np.isnan(values), np.inf, values)
    low = np.quantile(lowest, ALPHA / 2, method="lower")
    high = np.quantile(highest, 1 - ALPHA / 2, method="higher")
    return float(low), float(high)
