"""Means, t intervals, t tests and their power for a handful of runs: arrays in, numbers out.

The unit is a run, whose evaluation repeats have been averaged before. In a simulation with 8 normal
runs (tests/test_statistics.py) the 95 % t interval covers the true mean in 95 % of the cases, and
one standard error covers it in 65 %: plots show standard errors, claims rest on t intervals.

Power uses the noncentral t distribution (Cohen 1988, "Statistical Power Analysis", chapter 2; for
seeds Colas et al. 2018, arXiv:1806.08295). Power at the observed effect helps to plan the next
experiment; about this one it says nothing that p does not.

Shapes: S = runs of an arm, or pairs; G = grid points; K = tests.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
ALPHA = 0.05  # two-sided; intervals cover 1 - ALPHA
NEGLIGIBLE = 1e-12  # times the largest value (at least 1): a smaller standard error is rounding
POWER = 0.8
MOST_RUNS = 10_000


@dataclass(frozen=True)
class TTest:
    """An estimate with its t interval, and the two-sided p of the hypothesis that it is 0.

    With fewer than two runs, or without spread between runs, there is only an estimate: df, low,
    high and p are NaN, and the standard error is NaN, or 0 but for rounding.
    """

    estimate: float
    stderr: float
    df: float
    low: float
    high: float
    p: float


def mean_and_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Average over runs, with the standard error of the mean, sample std / sqrt(S).

    Args:
        values: (S, G); NaN where a run has no value.

    Returns:
        (G,) means and (G,) standard errors, NaN where fewer than 2 runs have a value.

    >>> mean, stderr = mean_and_stderr(np.array([[1.0], [3.0]]))
    >>> float(mean[0]), float(stderr[0])
    (2.0, 1.0)
    """
    runs = pd.DataFrame(values)
    return runs.mean().to_numpy(float), runs.sem().to_numpy(float)


def t_half_width(stderr: Floats, count: NDArray[np.integer]) -> Floats:
    """Compute the (G,) half widths of t intervals of means over `count` runs; NaN below 2 runs."""
    return np.asarray(special.stdtrit(count - 1.0, 1 - ALPHA / 2) * stderr)


def iqm(values: Floats) -> float:
    """Compute the interquartile mean of (S,) runs (Agarwal et al. 2021, arXiv:2108.13264).

    A quarter of the weight is cut at each end. Where S is not a multiple of 4, the run at the edge
    counts in part, so that exactly half remains; the paper's code cuts floor(S / 4) whole runs.
    The mean of no run is NaN.

    >>> iqm(np.array([0.0, 1.0, 2.0, 9.0]))
    1.5
    """
    if not len(values):
        return float("nan")
    edges = np.linspace(0, 1, len(values) + 1).clip(0.25, 0.75)
    return float(np.sort(values) @ np.diff(edges) / 0.5)


def has_spread(stderr: float, *values: Floats) -> bool:
    """Return whether a standard error is more than rounding; without spread nothing can be tested.

    >>> has_spread(1e-17, np.array([0.7, 0.7])), has_spread(0.001, np.array([0.7, 0.702]))
    (False, True)
    """
    scale = max([1.0, *(float(np.abs(sample).max()) for sample in values)])
    return bool(stderr > NEGLIGIBLE * scale)


def spread(name: str, values: Floats) -> dict[str, float]:
    """Summarize (S,) values as columns of one name: mean, standard error, t interval and IQM."""
    test = t_test(values) if len(values) else TTest(*[float("nan")] * 6)
    return {
        name: test.estimate,
        f"{name}_stderr": test.stderr,
        f"{name}_low": test.low,
        f"{name}_high": test.high,
        f"{name}_iqm": iqm(values),
    }


def t_test(ours: Floats, theirs: Floats | None = None) -> TTest:
    """Test whether a mean is 0: the paired t test, or Welch's test (1947) of two samples.

    `scipy.stats` gives the same numbers (tests/test_statistics.py) but takes half a second to load.

    Args:
        ours: (S,) differences of pairs; or, with `theirs`, the outcomes of an arm's runs.
        theirs: outcomes of the baseline's runs; the estimate is mean(ours) - mean(theirs).
    """
    samples = [ours] if theirs is None else [ours, theirs]
    estimate = float(ours.mean() - (0.0 if theirs is None else theirs.mean()))
    if min(map(len, samples)) < 2:
        return TTest(estimate, *[float("nan")] * 5)
    sizes = np.array([len(sample) for sample in samples])
    parts = np.array([sample.var(ddof=1) for sample in samples]) / sizes
    stderr = float(parts.sum()) ** 0.5
    if not has_spread(stderr, *samples):
        return TTest(estimate, stderr, *[float("nan")] * 4)
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


def power(noncentrality: float, df: float) -> float:
    """Compute the chance that a two-sided t test finds a difference.

    Args:
        noncentrality: true difference / its standard error.
        df: degrees of freedom.

    >>> round(power(1.0 * 10**0.5, df=9), 3)  # 10 pairs, difference = one sd of the differences
    0.803
    """
    bound = special.stdtrit(df, 1 - ALPHA / 2)
    below = special.nctdtr(df, noncentrality, np.array([bound, -bound]))
    under, opposite = np.nan_to_num(below)  # scipy returns NaN for what is under 1e-9
    return float(1 - under + opposite)


def detectable(stderr: float, df: float) -> float:
    """Compute the smallest true difference that is found with 80 % power at this standard error.

    NaN where there was no test. The chance of finding the opposite sign is neglected: below 1e-6.
    """
    bound = special.stdtrit(df, 1 - ALPHA / 2)
    return float(special.nctdtrinc(df, 1 - POWER, bound) * stderr)


def runs_needed(ours: Floats, theirs: Floats | None = None) -> float:
    """Compute how many pairs, or runs per arm, give 80 % power if means and sds are as observed.

    Args:
        ours: as for `t_test`.
        theirs: as for `t_test`.

    Returns:
        The smallest number from 2 to 10,000; inf: more than that; NaN: the runs have no spread.
    """
    samples = [ours] if theirs is None else [ours, theirs]
    difference = float(ours.mean() - (0.0 if theirs is None else theirs.mean()))
    variances = np.array([sample.var(ddof=1) for sample in samples])
    total = float(variances.sum())
    if not has_spread(total**0.5, *samples):
        return float("nan")
    df_share = total**2 / float((variances**2).sum())  # df / (runs - 1): 1 for pairs, up to 2

    def enough(runs: int) -> bool:
        noncentrality = abs(difference) * (runs / total) ** 0.5
        return power(noncentrality, (runs - 1) * df_share) >= POWER

    candidates = range(2, MOST_RUNS + 1)
    found = bisect_left(candidates, True, key=enough)
    return float(candidates[found]) if found < len(candidates) else float("inf")
