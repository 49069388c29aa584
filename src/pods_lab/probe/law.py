"""The constants of the law of n and m, from the inner products of single rollouts' gradients.

With v a rollout's gradient and x a problem, d_x = E[v | right] - E[v | wrong], so that the gradient
of its success rate p is p (1 - p) d_x, and q = p (1 - p). Expectations are over problems:

- **NOISE**: E|v - class mean|² of wrong rollouts over E|d_x|², and **ratio**: of right over wrong.
- **rho**: E<d_x, d_y> / E|d_x|² of two problems: 1 where all have one direction, 0 where unrelated.
- **kappa**: <d_x, gradient of the expected reward on other problems>, over its mean, and **own**:
  the t of kappa ∝ (1 - t) E[q] + t q, 0 where a step serves all problems alike. Beside kappa, also
  by p: **square** |d_x|² and **wrong**, the noise of wrong rollouts, each over its mean.

**No noise meets itself.** |d_x|² loses the variance of its two class means, and products of two
problems share no rollout. Given the number of right rollouts d_x is unbiased, so only p and q err.
own uses unbiased powers of q (falling factorials; least squares on observed rates are biased to 0)
and weighs problems by q, which needs no choice of them. The others need two right and two wrong
rollouts: they hold without the hardest and the easiest, whose shares are **left out**.

Shapes: P = problems, N = rollouts of each, S = resamples.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.numbers.statistics import Floats
from pods.types import Group
from pods_lab.probe.moments import INTERVAL, resampled, with_sums

EDGES = np.arange(11) / 10  # of bins of the success rate
LEAST = 5  # problems of a bin that is shown


def constants(
    products: NDArray[np.float32], groups: Sequence[Group], resamples: int, seed: int
) -> pd.DataFrame:
    """Return the columns constant, value, low, high, problems: 95 % by bootstrap over problems.

    They follow from the (P N, P N) inner products of the gradients of (P,) groups of N >= 6
    rollouts. Pairs of one problem are left out, also in the bootstrap. Where noise leaves a mean
    |d_x|² that is not positive, what is divided by it is infinite.
    """
    found, shares, rows = _Found(products, groups), resampled(len(groups), resamples, seed), []
    for name, values, count in _statistics(found, shares):
        ends = pd.Series(values[1:]).quantile(INTERVAL, "nearest")  # NaN where all are
        rows.append((name, values[0], *ends, count))
    return pd.DataFrame(rows, columns=["constant", "value", "low", "high", "problems"])


class _Found:
    """What is measured of each problem, (P,), and of each two, (P, P)."""

    def __init__(self, products: NDArray[np.float32], groups: Sequence[Group]) -> None:
        right = np.array([group.rewarded for group in groups])
        size = right.shape[1]
        kernel = np.asarray(products).reshape(right.shape * 2)
        own = np.array([kernel[x, :, x] for x in range(len(right))], dtype=float)
        count = right.sum(1)
        self.few = {"few right": count < 2, "few wrong": size - count < 2}
        self.kept = ~np.any([*self.few.values()], axis=0)
        self.rate = count / size
        self.right, self.wrong = _variance(own, right), _variance(own, ~right)
        of_right, of_wrong = 1 / np.maximum(count, 1), 1 / np.maximum(size - count, 1)
        contrast = np.where(right, of_right[:, None], -of_wrong[:, None])
        self.square = np.einsum("pn,pnm,pm->p", contrast, own, contrast)
        self.square -= self.right * of_right + self.wrong * of_wrong
        target = (right - self.rate[:, None]) / (size - 1)  # as in `moments`
        self.between, self.kappa = (
            np.einsum("pn,pnq->pq", contrast, with_sums(kernel, one)) for one in (contrast, target)
        )
        i = np.arange(3)[:, None]  # q, q², q³: drawn without replacement, pairs of right and wrong
        chances = (count - i) * (size - count - i) / ((size - 2 * i) * (size - 2 * i - 1))
        self.powers = np.cumprod(chances, axis=0)  # (3, P), 0 where there are not so many


def _variance(own: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """Return the variance within a class of each problem's rollouts, summed over weights, (P,)."""
    count = chosen.sum(1)
    total = np.einsum("pn,pnn->p", chosen, own)
    of_mean = np.einsum("pn,pnm,pm->p", chosen, own, chosen) / np.maximum(count, 1)
    variance: Floats = (total - of_mean) / np.maximum(count - 1, 1)
    return variance


def _statistics(found: _Found, shares: Floats) -> Iterator[tuple[str, Floats, int]]:
    """Yield each constant's name, its values at (S, P) shares of problems, and how many have it."""
    kept = shares * found.kept
    with np.errstate(divide="ignore", invalid="ignore"):
        square = kept @ found.square / kept.sum(1)
        noise = kept @ found.wrong / kept.sum(1)
        per_square = np.where(square > 0, 1 / square, np.inf)
        count = int(found.kept.sum())
        yield "NOISE", noise * per_square, count
        yield "ratio", kept @ found.right / (kept @ found.wrong), count
        yield "rho", _pairs(kept, kept, found.between) / _pairs(kept, kept) * per_square, count
        yield "own", _own(found, shares), int((found.powers[0] > 0).sum())
        kappa = _pairs(kept, shares, found.kappa) / _pairs(kept, shares)
        for name, few in found.few.items():
            yield f"left out, {name}", shares @ few, len(few)
        for low, high in pairwise(EDGES):
            chosen = found.kept & (found.rate >= low) & (found.rate < high)
            part, count = shares * chosen, int(chosen.sum())
            if count >= LEAST:
                name = f"p {low:.1f}-{high:.1f}"
                along = _pairs(part, shares, found.kappa) / _pairs(part, shares)
                yield f"kappa, {name}", along / kappa, count
                yield f"square, {name}", part @ found.square / part.sum(1) * per_square, count
                yield f"wrong, {name}", part @ found.wrong / part.sum(1) / noise, count


def _own(found: _Found, shares: Floats) -> Floats:
    """Fit kappa = a + b q by least squares weighed by q; return b E[q] / (a + b E[q]), (S,)."""
    q, q2, q3 = (_pairs(shares * power, shares) for power in found.powers)
    first, second = (_pairs(shares * power, shares, found.kappa) for power in found.powers[:2])
    slope, constant = q * second - q2 * first, q3 * first - q2 * second
    mean = q / _pairs(shares, shares)
    return slope * mean / (constant + slope * mean)


def _pairs(left: Floats, right: Floats, of: Floats | float = 1.0) -> Floats:
    """Sum over pairs of different problems, (S,): weights (S, P) of both times (P, P) values."""
    total: Floats = ((left @ (of * (1 - np.eye(left.shape[1])))) * right).sum(1)
    return total
