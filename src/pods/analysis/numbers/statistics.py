"""Means, t tests, exact tests and the bootstrap for a handful of runs: arrays in, numbers out.

The unit is a run, whose evaluation repeats have been averaged before. In a simulation with 8 normal
runs the 95 % t interval covers the true mean in 95 % of the cases, one standard error covers it in
65 %, and the 95 % percentile bootstrap interval in 89 %. So plots show standard errors, claims
about means rest on t intervals, and the bootstrap serves statistics that have none, such as a ratio
of medians. The exact tests assume no normal distribution.

Shapes: S = runs of an arm, or pairs; G = grid points; K = tests; D = resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
ALPHA = 0.05  # two-sided; intervals cover 1 - ALPHA
NEGLIGIBLE = 1e-12  # times the largest value (at least 1): a smaller standard error is rounding
MOST_PAIRS = 20  # all 2^20 sign patterns are enumerated; scipy.stats takes seconds from 17 on
MOST_ARRANGEMENTS = 200_000  # of the runs of two arms; 10 and 10 have 184,756
RANDOM_ARRANGEMENTS = 19_999
ROUNDING = 1e-9  # relative: sums that differ by less are equal


@dataclass(frozen=True)
class TTest:
    """An estimate with its t interval, and the two-sided p of the hypothesis that it is 0.

    With fewer than two runs, or without spread between runs, there is only an estimate: df, low,
    high and p are NaN, and the standard error is NaN, or 0 but for rounding.
    """

    estimate: float
    stderr: float = np.nan
    df: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan


def mean_and_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Average (S, G) values over runs, with the standard error of the mean, sample std / sqrt(S).

    A NaN is no value. The (G,) standard errors are NaN where fewer than 2 runs have one.

    >>> mean, stderr = mean_and_stderr(np.array([[1.0], [3.0]]))
    >>> float(mean[0]), float(stderr[0])
    (2.0, 1.0)
    """
    runs = pd.DataFrame(values)
    return runs.mean().to_numpy(float), runs.sem().to_numpy(float)


def spread(name: str, values: Floats) -> dict[str, float]:
    """Summarize (S,) values as columns of one name: mean, standard error and t interval."""
    test = t_test(values) if len(values) else TTest(np.nan)
    return {
        name: test.estimate,
        f"{name}_stderr": test.stderr,
        f"{name}_low": test.low,
        f"{name}_high": test.high,
    }


def t_test(arm: Floats, baseline: Floats | None = None) -> TTest:
    """Test whether a mean is 0: the paired t test, or Welch's test (1947) of two samples.

    `arm` has the (S,) differences of pairs, or with `baseline` the outcomes of an arm's runs. The
    estimate is then mean(arm) - mean(baseline). `scipy.stats` gives the same numbers
    (tests/test_statistics.py) but takes half a second to load.
    """
    samples = [arm] if baseline is None else [arm, baseline]
    estimate = float(arm.mean() - (0.0 if baseline is None else baseline.mean()))
    if min(map(len, samples)) < 2:
        return TTest(estimate)
    sizes = np.array([len(sample) for sample in samples])
    parts = np.array([sample.var(ddof=1) for sample in samples]) / sizes
    stderr = float(parts.sum()) ** 0.5
    if stderr <= NEGLIGIBLE * max([1.0, *(float(np.abs(sample).max()) for sample in samples)]):
        return TTest(estimate, stderr)
    df = float(parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum())  # Satterthwaite 1946
    half = float(special.stdtrit(df, 1 - ALPHA / 2)) * stderr
    p = 2 * float(special.stdtr(df, -abs(estimate) / stderr))
    return TTest(estimate, stderr, df, estimate - half, estimate + half, p)


def holm(p: Floats) -> Floats:
    """Adjust the (K,) p values of a family so that the chance of any false positive stays alpha.

    Step-down method of Holm 1979. A NaN stays NaN and does not count as a test.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()  # 3 x 0.01; 2 x 0.03; at least that
    [0.03, 0.06, 0.06]
    """
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return adjusted


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
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (RANDOM_ARRANGEMENTS, len(size)))
    return _randomized(np.abs(signs @ size) >= least)


def permutation(arm: Floats, baseline: Floats, seed: int = 0) -> ExactTest:
    """Test the difference of two means: under the null any run could be of either arm.

    p is the share of arrangements with at least the observed absolute difference. (scipy.stats
    doubles the smaller tail instead, which differs where the arms have unequal numbers of runs.)
    All C(a + b, a) arrangements are enumerated, or random ones drawn above 200,000.

    >>> permutation(np.array([1.0, 2.0]), np.array([3.0, 4.0])).p  # 2 of 6
    0.3333333333333333
    """
    few, many = sorted((arm, baseline), key=len)
    pooled = np.concatenate([few, many])
    pooled = pooled - pooled.mean()  # now the sum over one arm determines the difference
    least = abs(pooled[: len(few)].sum()) - ROUNDING * np.abs(pooled).sum()
    count = round(special.binom(len(pooled), len(few)))
    if count <= MOST_ARRANGEMENTS:
        sums = np.fromiter(map(sum, combinations(pooled.tolist(), len(few))), float)
        extreme = np.abs(sums) >= least
        mirrored = len(few) == len(many)  # each difference occurs with both signs
        return ExactTest(float(extreme.mean()), (2 if mirrored else 1) / count, 0)
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(pooled, (RANDOM_ARRANGEMENTS, 1)), axis=1)
    return _randomized(np.abs(shuffled[:, : len(few)].sum(1)) >= least)


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
