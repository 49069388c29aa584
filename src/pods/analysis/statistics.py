"""Means, t intervals and t tests for a handful of runs: arrays in, numbers out.

A run is the unit: its repeats were averaged before. With 8 normal runs, simulated in
tests/test_statistics.py, the true mean lies in the 95 % t interval 95 % of the time, within one
standard error 65 %: plots show the second, claims rest on the first.

Shapes: S = runs of an arm, or pairs; G = grid points; K = tests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
ALPHA = 0.05  # two-sided; intervals hold 1 - ALPHA
NEGLIGIBLE = 1e-12  # of the values, of 1 at least: a standard error of no more is rounding


@dataclass(frozen=True)
class TTest:
    """An estimate with its t interval, and the two-sided p of its being 0.

    Without two runs, or without spread between them, there is an estimate alone: the rest is NaN
    (the standard error is 0 or rounding in the second case).
    """

    estimate: float
    stderr: float
    df: float
    low: float
    high: float
    p: float


def mean_and_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Mean over runs and its standard error, sample std / sqrt(S).

    Args:
        values: (S, G); NaN where a run has no value.

    Returns:
        (G,) means and (G,) standard errors, NaN where fewer than 2 runs have a value.

    >>> mean, stderr = mean_and_stderr(np.array([[1.0], [3.0]]))
    >>> float(mean[0]), float(stderr[0])
    (2.0, 1.0)
    """
    count = (~np.isnan(values)).sum(0)
    safe = np.maximum(count, 1)
    mean = np.where(count > 0, np.nansum(values, 0) / safe, np.nan)
    squares = np.nansum((values - mean) ** 2, 0)
    stderr = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / safe), np.nan)
    return mean, stderr


def t_half_width(stderr: Floats, count: NDArray[np.integer], alpha: float = ALPHA) -> Floats:
    """(G,) half widths of the t intervals of means over `count` runs; NaN for fewer than 2."""
    enough = count > 1
    factor = special.stdtrit(np.where(enough, count - 1, 1), 1 - alpha / 2)
    return np.where(enough, factor * stderr, np.nan)


def iqm(values: Floats) -> float:
    """Interquartile mean: of the middle half of the runs (Agarwal et al. 2021, arXiv:2108.13264).

    A quarter of the weight goes at each end. Where S is no multiple of 4 a run at the edge counts
    in part, so that exactly half remains; the paper's code cuts floor(S / 4) whole runs.

    Args:
        values: (S,); empty gives NaN.

    >>> iqm(np.array([0.0, 1.0, 2.0, 9.0]))
    1.5
    """
    if not len(values):
        return float("nan")
    edges = np.linspace(0, 1, len(values) + 1).clip(0.25, 0.75)
    return float(np.sort(values) @ np.diff(edges) / 0.5)


def no_spread(stderr: float, *values: Floats) -> bool:
    """Say whether a standard error is 0 but for rounding: then nothing tells how sure a mean is.

    >>> no_spread(1e-17, np.array([0.7, 0.7])), no_spread(0.001, np.array([0.7, 0.702]))
    (True, False)
    """
    scale = max([1.0, *(float(np.abs(of).max()) for of in values)])
    return bool(stderr <= NEGLIGIBLE * scale)


def spread(name: str, values: Floats) -> dict[str, float]:
    """Mean of (S,) values, its standard error and t interval, and IQM, under one name."""
    (mean,), (stderr,) = mean_and_stderr(values[:, None])
    half = float(t_half_width(np.array([stderr]), np.array([len(values)]))[0])
    half = float("nan") if len(values) and no_spread(float(stderr), values) else half
    return {
        name: float(mean),
        f"{name}_stderr": float(stderr),
        f"{name}_low": float(mean) - half,
        f"{name}_high": float(mean) + half,
        f"{name}_iqm": iqm(values),
    }


def paired_t(differences: Floats, alpha: float = ALPHA) -> TTest:
    """Paired t test and interval of the mean of (S,) differences; NaN apart from it for S < 2."""
    (mean,), (stderr,) = mean_and_stderr(differences[:, None])
    if no_spread(float(stderr), differences):
        return _untested(float(mean), float(stderr))
    return _t_test(float(mean), float(stderr), len(differences) - 1.0, alpha)


def welch_t(ours: Floats, theirs: Floats, alpha: float = ALPHA) -> TTest:
    """Welch's test of mean(ours) - mean(theirs), runs not paired, variances not alike.

    Source: Welch 1947; degrees of freedom by Satterthwaite 1946. NaN but for the estimate where
    an arm has fewer than 2 runs.
    """
    (mean,), (stderr,) = mean_and_stderr(ours[:, None])
    (other_mean,), (other_stderr,) = mean_and_stderr(theirs[:, None])
    one, other = float(stderr) ** 2, float(other_stderr) ** 2
    both = float(np.sqrt(one + other))
    if no_spread(both, ours, theirs):
        return _untested(float(mean - other_mean), both)
    shares = one**2 / max(len(ours) - 1, 1) + other**2 / max(len(theirs) - 1, 1)
    return _t_test(float(mean - other_mean), both, (one + other) ** 2 / shares, alpha)


def _untested(estimate: float, stderr: float) -> TTest:
    return TTest(estimate, stderr, *[float("nan")] * 4)


def _t_test(estimate: float, stderr: float, df: float, alpha: float) -> TTest:
    if np.isnan(stderr):
        return _untested(estimate, stderr)
    half = float(special.stdtrit(df, 1 - alpha / 2)) * stderr
    p = 2 * float(special.stdtr(df, -abs(estimate) / stderr))
    return TTest(estimate, stderr, df, estimate - half, estimate + half, p)


def holm(p: Floats) -> Floats:
    """Adjust the (K,) p values of a family so that the chance of any false find stays alpha.

    Step-down (Holm 1979); NaN where there was no test, which then counts for nothing.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()  # 3 x 0.01; 2 x 0.03; at least that
    [0.03, 0.06, 0.06]
    """
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return adjusted
