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
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.types import Floats, Group
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
    measured = _Measured(products, groups)
    shares = resampled(len(groups), resamples, seed)
    rows = []
    for statistic in _statistics(measured, shares):
        ends = pd.Series(statistic.values[1:]).quantile(INTERVAL, "nearest")  # NaN where all are
        rows.append({
            "constant": statistic.name,
            "value": statistic.values[0],
            "low": ends.iloc[0],
            "high": ends.iloc[1],
            "problems": statistic.problems,
        })  # fmt: skip
    return pd.DataFrame(rows)


class _Statistic(NamedTuple):
    """A constant of the law."""

    name: str
    values: Floats
    """At (1 + S,) shares of the problems, the equal ones first."""
    problems: int
    """How many problems it rests on."""


class _Measured:
    """What is measured of each problem, (P,), and of each two, (P, P)."""

    def __init__(self, products: NDArray[np.float32], groups: Sequence[Group]) -> None:
        right = np.array([group.rewarded for group in groups])
        problems, size = right.shape
        kernel = np.asarray(products).reshape(problems, size, problems, size)
        within = np.array([kernel[x, :, x] for x in range(problems)], dtype=float)  # (P, N, N)
        count = right.sum(axis=1)
        few_right = count < 2
        few_wrong = size - count < 2
        self.few = {"few right": few_right, "few wrong": few_wrong}
        self.kept = ~(few_right | few_wrong)
        self.rate = count / size

        self.right = _variance(within, right)
        self.wrong = _variance(within, ~right)
        per_right = 1 / np.maximum(count, 1)
        per_wrong = 1 / np.maximum(size - count, 1)
        contrast = np.where(right, per_right[:, None], -per_wrong[:, None])
        self.square = np.einsum("pn,pnm,pm->p", contrast, within, contrast)
        self.square -= self.right * per_right + self.wrong * per_wrong

        target = (right - self.rate[:, None]) / (size - 1)  # as in `moments`
        self.between = np.einsum("pn,pnq->pq", contrast, with_sums(kernel, contrast))
        self.kappa = np.einsum("pn,pnq->pq", contrast, with_sums(kernel, target))
        drawn = np.arange(3)[:, None]  # q, q², q³: pairs of right and wrong without replacement
        pairs = (count - drawn) * (size - count - drawn)
        chances = pairs / ((size - 2 * drawn) * (size - 2 * drawn - 1))
        self.powers = np.cumprod(chances, axis=0)  # (3, P), 0 where there are not so many


def _variance(within: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """Return the variance within a class of each problem's rollouts, summed over weights, (P,)."""
    count = chosen.sum(axis=1)
    total = np.einsum("pn,pnn->p", chosen, within)
    mean_part = np.einsum("pn,pnm,pm->p", chosen, within, chosen) / np.maximum(count, 1)
    variance: Floats = (total - mean_part) / np.maximum(count - 1, 1)
    return variance


def _statistics(measured: _Measured, shares: Floats) -> Iterator[_Statistic]:
    """Yield each constant, at (1 + S, P) shares of problems."""
    kept = shares * measured.kept
    count = int(measured.kept.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        square = kept @ measured.square / kept.sum(axis=1)
        noise = kept @ measured.wrong / kept.sum(axis=1)
        per_square = np.where(square > 0, 1 / square, np.inf)
        ratio = kept @ measured.right / (kept @ measured.wrong)
        rho = _pair_mean(kept, kept, measured.between) * per_square
        yield _Statistic("NOISE", noise * per_square, count)
        yield _Statistic("ratio", ratio, count)
        yield _Statistic("rho", rho, count)
        yield _Statistic("own", _own(measured, shares), int((measured.powers[0] > 0).sum()))
        for name, few in measured.few.items():
            yield _Statistic(f"left out, {name}", shares @ few, len(few))

        kappa = _pair_mean(kept, shares, measured.kappa)
        for low, high in pairwise(EDGES):
            chosen = measured.kept & (measured.rate >= low) & (measured.rate < high)
            part = shares * chosen
            count = int(chosen.sum())
            if count < LEAST:
                continue
            name = f"p {low:.1f}-{high:.1f}"
            along = _pair_mean(part, shares, measured.kappa)
            part_square = part @ measured.square / part.sum(axis=1)
            part_noise = part @ measured.wrong / part.sum(axis=1)
            yield _Statistic(f"kappa, {name}", along / kappa, count)
            yield _Statistic(f"square, {name}", part_square * per_square, count)
            yield _Statistic(f"wrong, {name}", part_noise / noise, count)


def _own(measured: _Measured, shares: Floats) -> Floats:
    """Fit kappa = a + b q by least squares weighed by q; return b E[q] / (a + b E[q]), (1 + S,)."""
    by_q, by_q2, by_q3 = (shares * power for power in measured.powers)
    q = _pair_sum(by_q, shares)
    q2 = _pair_sum(by_q2, shares)
    q3 = _pair_sum(by_q3, shares)
    kappa_q = _pair_sum(by_q, shares, measured.kappa)
    kappa_q2 = _pair_sum(by_q2, shares, measured.kappa)
    slope = q * kappa_q2 - q2 * kappa_q
    constant = q3 * kappa_q - q2 * kappa_q2
    mean = q / _pair_sum(shares, shares)
    return slope * mean / (constant + slope * mean)


def _pair_mean(left: Floats, right: Floats, values: Floats) -> Floats:
    """Average (P, P) values over pairs of different problems with weights (1 + S, P) of both."""
    return _pair_sum(left, right, values) / _pair_sum(left, right)


def _pair_sum(left: Floats, right: Floats, values: Floats | float = 1.0) -> Floats:
    """Sum over pairs of different problems, (1 + S,): weights of both times (P, P) values."""
    between = values * (1 - np.eye(left.shape[1]))
    total: Floats = ((left @ between) * right).sum(axis=1)
    return total
