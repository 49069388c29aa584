"""Power of the t tests: what the present runs could have shown, and how many more it takes.

Source: the noncentral t distribution, as in Cohen 1988, "Statistical Power Analysis", chapter 2;
Colas et al. 2018, arXiv:1806.08295, for seeds. Power at the effect that was seen is a guide for
the next experiment: it says nothing about this one that its p does not.
"""

import numpy as np
from scipy import special

from pods.analysis.statistics import ALPHA, Floats, no_spread

POWER = 0.8
MOST_RUNS = 10_000


def power(noncentrality: float, df: float, alpha: float = ALPHA) -> float:
    """Chance that a two-sided t test finds a difference.

    Args:
        noncentrality: true difference / its standard error.
        df: degrees of freedom.
        alpha: of the test.

    >>> round(power(1.0 * 10**0.5, df=9), 3)  # 10 pairs, difference = one sd of the differences
    0.803
    """
    bound = special.stdtrit(df, 1 - alpha / 2)
    below = special.nctdtr(df, noncentrality, np.array([bound, -bound]))
    under, far = np.nan_to_num(below)  # the library has NaN for what is under 1e-9
    return float(1 - under + far)


def detectable(stderr: float, df: float, alpha: float = ALPHA) -> float:
    """The smallest true difference that runs with this standard error find with 80 % power.

    NaN where there was no test: fewer than two runs, or no spread between them.
    """
    if np.isnan(stderr) or np.isnan(df):
        return float("nan")
    low, high = 0.0, 1.0
    while power(high, df, alpha) < POWER:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, df, alpha) >= POWER else (middle, high)
    return high * stderr


def pairs_needed(differences: Floats, alpha: float = ALPHA) -> float:
    """Pairs for 80 % power if the true mean and sd are those of the (S,) differences.

    NaN where they do not differ among themselves.
    """
    sd = float(differences.std(ddof=1))
    if no_spread(sd, differences):
        return float("nan")
    return _needed(float(differences.mean()), sd**2, 1.0, alpha)


def runs_needed(ours: Floats, theirs: Floats, alpha: float = ALPHA) -> float:
    """Runs an arm for 80 % power of Welch's test, if true means and sds are those seen.

    NaN where neither arm's runs differ among themselves.
    """
    one, other = float(ours.var(ddof=1)), float(theirs.var(ddof=1))
    if no_spread((one + other) ** 0.5, ours, theirs):
        return float("nan")
    df_share = (one + other) ** 2 / (one**2 + other**2)  # 2 where the sds are equal
    return _needed(float(ours.mean() - theirs.mean()), one + other, df_share, alpha)


def _needed(difference: float, variance: float, df_share: float, alpha: float) -> float:
    """Smallest S in 2..10,000 with enough power; inf: none.

    With S runs the standard error is sqrt(variance / S), with (S - 1) df_share degrees of freedom.
    """

    def enough(runs: int) -> bool:
        noncentrality = abs(difference) * (runs / variance) ** 0.5
        return power(noncentrality, (runs - 1) * df_share, alpha) >= POWER

    low, high = 1, MOST_RUNS
    if not enough(high):
        return float("inf")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)
