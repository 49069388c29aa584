"""Means, t tests and the bootstrap for a handful of runs: arrays in, numbers out.

The unit is a run, whose evaluation repeats have been averaged before. In a simulation with 8 normal
runs the 95 % t interval covers the true mean in 95 % of the cases, one standard error covers it in
65 %, and the 95 % percentile bootstrap interval in 89 %. So plots show standard errors, claims
about means rest on t intervals, and the bootstrap serves statistics that have none, such as a ratio
of medians.

Shapes: S = runs of an arm, or pairs; G = grid points; K = tests; D = resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special  # and not scipy.stats, which takes half a second to import

from pods.types import Floats

Indices = NDArray[np.intp]
ALPHA = 0.05  # two-sided; intervals cover 1 - ALPHA
LEAST_RUNS = 3  # pairs, or runs of each arm, that a p needs: two say little of their own spread
FEW_RUNS = 6  # fewer pairs, or runs of each arm, cannot show whether they are normal
NEGLIGIBLE = 1e-12  # times the largest value (at least 1): a smaller standard error is rounding


@dataclass(frozen=True)
class TTest:
    """An estimate with its 95 % t interval, and the two-sided p of the hypothesis that it is 0.

    With one run, with a NaN among the runs, or without spread between them there is no interval:
    df, low and high are NaN. p is NaN, too, and with fewer than `LEAST_RUNS` runs, except that
    runs without any difference have p = 1, so that they count as a test of their family.
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


def t_test(values: Floats) -> TTest:
    """Test whether the mean of (S,) values is 0; with differences of pairs, the paired t test."""
    estimate = float(values.mean())
    if len(values) < 2:
        return TTest(estimate)

    stderr = _stderr(values)
    if not has_spread(values):
        return _without_spread(estimate, stderr, len(values))
    return _with_spread(estimate, stderr, df=len(values) - 1, runs=len(values))


def welch_test(arm: Floats, baseline: Floats) -> TTest:
    """Test whether two samples have one mean (Welch 1947); the estimate is mean(arm - baseline)."""
    estimate = float(arm.mean() - baseline.mean())
    runs = min(len(arm), len(baseline))
    if runs < 2:
        return TTest(estimate)

    arm_variance = _stderr(arm) ** 2
    baseline_variance = _stderr(baseline) ** 2
    variance = arm_variance + baseline_variance
    stderr = float(np.sqrt(variance))
    if not _is_spread(stderr, np.concatenate([arm, baseline])):
        return _without_spread(estimate, stderr, runs)

    # the degrees of freedom by Welch and Satterthwaite
    arm_part = arm_variance**2 / (len(arm) - 1)
    baseline_part = baseline_variance**2 / (len(baseline) - 1)
    df = variance**2 / (arm_part + baseline_part)
    return _with_spread(estimate, stderr, df, runs)


def _with_spread(estimate: float, stderr: float, df: float, runs: int) -> TTest:
    """Test an estimate by Student's t; `runs` are those of the arm that has fewer."""
    half_width = stderr * float(special.stdtrit(df, 1 - ALPHA / 2))
    p = np.nan
    if runs >= LEAST_RUNS:
        p = 2 * float(special.stdtr(df, -abs(estimate) / stderr))
    return TTest(
        estimate=estimate,
        stderr=stderr,
        df=float(df),
        low=estimate - half_width,
        high=estimate + half_width,
        p=p,
    )


def _stderr(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def has_spread(values: Floats) -> bool:
    """Whether two or more (S,) values differ by more than rounding; False: a NaN is among them."""
    return _is_spread(_stderr(values), values)


def _is_spread(stderr: float, values: Floats) -> bool:
    """Tell a standard error from rounding; with a NaN among the values there is none."""
    return stderr > NEGLIGIBLE * max(1.0, float(np.abs(values).max()))


def _without_spread(estimate: float, stderr: float, runs: int) -> TTest:
    no_difference = abs(estimate) <= NEGLIGIBLE
    return TTest(estimate, stderr, p=1.0 if no_difference and runs >= LEAST_RUNS else np.nan)


def holm(p: Floats) -> Floats:
    """Adjust the (K,) p values of a family so that the chance of any false positive stays alpha.

    Step-down method of Holm 1979. A NaN stays NaN and does not count as a test.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()  # 3 x 0.01; 2 x 0.03; at least that
    [0.03, 0.06, 0.06]
    """
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    remaining = np.arange(len(order), 0, -1)  # tests that are not smaller

    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.maximum.accumulate(p[order] * remaining).clip(max=1)
    return adjusted


def is_told_apart(p_holm: float) -> bool:
    """Whether p after Holm's correction over the family is below 0.05; NaN: it is not.

    This explores. Only a plan's contrast is settled: `pods/analysis/README.md` has the words.
    """
    return p_holm < ALPHA


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
