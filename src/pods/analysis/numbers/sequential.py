"""An interval for a mean that is valid at every look, however many looks there are.

Shapes: S = differences so far, in the order in which they were made.
"""

import math

from pods.analysis.numbers.statistics import has_spread
from pods.types import Floats

PRIOR = 4.0  # variance of the effect that is expected, in variances of a difference
MOST = 1000  # units; more are not worth naming


def interval_at_every_look(values: Floats, alpha: float) -> tuple[float, float]:
    """Bound the mean of normal values, from (S,) of them, at level 1 - alpha for all S at once.

    With mean x, standard deviation s (ddof 1), v = S - 1 and g = `PRIOR`, the Bayes factor of an
    effect (mean / deviation) that is normal with variance g against none is
    (1 + Sg)^(-1/2) ((1 + t²/v) / (1 + t²/(v (1 + Sg))))^(S/2), the two-sample one of Gönen et al.
    2005 for one sample. Under no effect it is a martingale of the scale-invariant statistics (Wang
    & Ramdas 2023, arXiv:2310.03722, the Gaussian mixture of section 4), so that it ever reaches
    1/alpha with chance alpha at most (Ville). The interval has the means at which it does not:

        x ± s/√S √(v (k - 1) / (1 - k/(1 + Sg))), k = (√(1 + Sg) / alpha)^(2/S), if k < 1 + Sg,

    else the whole line; so it is with fewer than 2 values, a NaN, or no spread.
    """
    count = len(values)
    if count < 2 or not has_spread(values):
        return -math.inf, math.inf
    half_width = _half_width(count, float(values.std(ddof=1)), alpha)
    mean = float(values.mean())
    return mean - half_width, mean + half_width


def _half_width(count: int, deviation: float, alpha: float) -> float:
    """Return half the width of the interval from so many values with this deviation."""
    prior = 1 + count * PRIOR
    ratio = (math.sqrt(prior) / alpha) ** (2 / count)
    if ratio >= prior:
        return math.inf
    return deviation / math.sqrt(count) * math.sqrt((count - 1) * (ratio - 1) / (1 - ratio / prior))


def state_of(low: float, high: float, margin: float) -> str:
    """Say where an interval lies: ahead of 0, behind it, equal (within the margin), or open.

    >>> state_of(0.1, 2.0, 0.5), state_of(-0.3, 0.4, 0.5), state_of(-0.3, 0.6, 0.5)
    ('ahead', 'equal', 'open')
    """
    if low > 0:
        return "ahead"
    if high < 0:
        return "behind"
    return "equal" if -margin <= low and high <= margin else "open"


def units_to_decide(values: Floats, alpha: float, margin: float) -> int | None:
    """Return how many values would decide, if mean and deviation stayed; None: over `MOST`."""
    if len(values) < 2 or not has_spread(values):
        return None
    mean = float(values.mean())
    deviation = float(values.std(ddof=1))
    for count in range(len(values) + 1, MOST + 1):
        half_width = _half_width(count, deviation, alpha)
        if state_of(mean - half_width, mean + half_width, margin) != "open":
            return count
    return None
