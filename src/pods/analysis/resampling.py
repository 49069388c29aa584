"""Exact rearrangement tests, and the bootstrap over whole runs: what assumes no normal curve.

With 8 normal runs, simulated in tests/test_statistics.py, the 95 % percentile bootstrap interval
of a mean holds the true one only 89 % of the time, which is why means get a t interval
first; the bootstrap serves what has none, such as a ratio of medians.

Shapes: S = runs of an arm, or pairs; D = resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pods.analysis.statistics import ALPHA, Floats

Indices = NDArray[np.intp]
MOST_PAIRS = 20  # up to 2^20 patterns of signs are gone through
MOST_ARRANGEMENTS = 200_000  # of the runs of two arms; 10 and 10 have 184,756
DRAWN_ARRANGEMENTS = 19_999
SAME = 1e-9  # of the whole: sums that differ by less are equal but for rounding


@dataclass(frozen=True)
class ExactTest:
    """Two-sided p of a rearrangement test."""

    p: float
    smallest: float
    """The smallest p that so few runs can give, whatever they show."""
    drawn: int
    """Arrangements drawn at random; 0: all were gone through, and p is exact."""


def sign_flip(differences: Floats, seed: int = 0) -> ExactTest:
    """Test of paired differences: each could as well have had the other sign (Fisher 1935).

    All 2^S patterns of signs, or random ones where S > 20; then the pattern seen counts as one
    more, so that p is valid and never 0 (Phipson & Smyth 2010).

    >>> sign_flip(np.array([1.0, 2.0, 3.0])).p  # 2 of 8 patterns sum to 6 or -6
    0.25
    """
    size = np.abs(differences)
    least = abs(differences.sum()) - SAME * size.sum()
    if len(size) <= MOST_PAIRS:
        sums = np.zeros(1)
        for one in size:
            sums = np.concatenate([sums + one, sums - one])
        return ExactTest(float((np.abs(sums) >= least).mean()), 2 / len(sums), 0)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (DRAWN_ARRANGEMENTS, len(size)))
    return _drawn(np.abs(signs @ size) >= least)


def permutation(ours: Floats, theirs: Floats, seed: int = 0) -> ExactTest:
    """Test of the difference of two means: any of the runs could as well be of the other arm.

    p is the share of arrangements whose difference is at least as large, in either direction. All
    C(a + b, a) of them, or random ones (as in `sign_flip`) where there are over 200,000.

    >>> permutation(np.array([1.0, 2.0]), np.array([3.0, 4.0])).p  # 2 of 6
    0.3333333333333333
    """
    few, many = sorted((ours, theirs), key=len)
    pooled = np.concatenate([few, many])
    pooled = pooled - pooled.mean()  # now the sum of one arm says the difference
    least = abs(pooled[: len(few)].sum()) - SAME * np.abs(pooled).sum()
    count = round(special.binom(len(pooled), len(few)))
    if count <= MOST_ARRANGEMENTS:
        extreme = np.abs(_subset_sums(pooled, len(few))) >= least
        mirrored = len(few) == len(many)  # each difference is there with both signs
        return ExactTest(float(extreme.mean()), (2 if mirrored else 1) / count, 0)
    rng = np.random.default_rng(seed)
    mixed = rng.permuted(np.tile(pooled, (DRAWN_ARRANGEMENTS, 1)), axis=1)
    return _drawn(np.abs(mixed[:, : len(few)].sum(1)) >= least)


def _subset_sums(values: Floats, size: int) -> Floats:
    """The sums of all subsets of this size, one value after the other joining or not."""
    sums = [np.zeros(1)] + [np.zeros(0)] * size  # by how many have joined
    for value in values:
        for joined in range(size, 0, -1):
            sums[joined] = np.concatenate([sums[joined], sums[joined - 1] + value])
    return sums[size]


def _drawn(extreme: NDArray[np.bool_]) -> ExactTest:
    count = len(extreme) + 1
    return ExactTest((int(extreme.sum()) + 1) / count, 1 / count, len(extreme))


def resamples(sizes: Sequence[int], draws: int, seed: int) -> list[Indices]:
    """Whole runs drawn with replacement: for each size S, (D, S) places. Pairs are one size."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, size, (draws, size)) for size in sizes]


def percentile_interval(values: Floats, alpha: float = ALPHA) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic from its (D,) values (Efron 1979).

    A value may be infinite. One that is not a number could have been anything, so it counts as
    the lowest for the low end and as the highest for the high end.
    """
    low = np.quantile(np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf),
                      alpha / 2, method="lower")  # fmt: skip
    high = np.quantile(np.nan_to_num(values, nan=np.inf, posinf=np.inf, neginf=-np.inf),
                       1 - alpha / 2, method="higher")  # fmt: skip
    return float(low), float(high)
