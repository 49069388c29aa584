"""How noisy a run's gradients are, from the squared norms of the gradients that it computes anyway.

A simple noise scale (McCandlish et al., arXiv:1812.06162, appendix A.1) from norms of sums over
some of a step's rollouts. What the mean of such a norm is made of is known from the advantages.

Shapes: R = norms, r = rollouts of a sum, D = all steps and their resamples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Row = Sequence[float]  # what `gradient_row` returns
DRAWS, REWEIGHTED = 100, 3  # bootstrap resamples; times that the weights follow the means
LEAST = 8  # steps from which an estimate is made
SCALES = ("noise", "shared", "ratio")


def gradient_row(
    weights: Floats,
    right: NDArray[np.bool_],
    success: Floats,
    problems: NDArray[np.intp],
    square: float,
) -> list[float]:
    """Return what the mean of a gradient's squared norm is made of, and that norm, `square`.

    The gradient is the sum of the (r,) weights (advantage over the rollouts of the update) times
    the gradients of rollouts, whether `right` or not, of `problems` with a share `success` right.
    Right ones are (1 - p) d on average and wrong ones -p d, so that a problem adds c d,
    c = sum of weight (right - p). Hence the mean square is

        |d|^2 ((1 - rho) sum c^2 + rho (sum c)^2) + noise of right rollouts x sum of their squared
        weights + noise of wrong ones x sum of theirs.

    >>> gradient_row(np.array([0.5, -0.5]), np.array([True, False]), np.full(2, 0.5),
    ...              np.array([3, 3]), 2.0)
    [0.25, 0.25, 0.25, 0.25, 2.0]
    """
    _, places = np.unique(problems, return_inverse=True)
    signals = np.bincount(places, weights * (right - success))
    squares = [float((weights[side] ** 2).sum()) for side in (right, ~right)]
    return [float((signals**2).sum()), float(signals.sum() ** 2), *squares, float(square)]


def estimates(steps: Sequence[Sequence[Row]]) -> Floats:
    """Return noise, shared and ratio of `GradientScales`, (1 + DRAWS, 3): row 0 of all steps.

    The other rows are of a bootstrap over steps. Least squares of relative errors, since a squared
    norm varies in proportion to its mean, without negative parts. Nothing is known, (0, 3), from
    fewer than `LEAST` steps with norms of some of their rollouts, which one micro-batch a step does
    not give: the signal and the noise of whole groups vary too little to be told apart.
    """
    from scipy.optimize import nnls  # a card's bare machine may lack it

    parts = ([row for row in rows if row[2] + row[3] > 0] for rows in steps)
    told = [rows for rows in parts if len(rows) > 1]
    if len(told) < LEAST:
        return np.empty((0, 3))
    rows = np.array([row for of_step in told for row in of_step])
    features, square = rows[:, :4], rows[:, 4]
    drawn = np.random.default_rng(0).multinomial(len(told), [1 / len(told)] * len(told), DRAWS)
    counts = np.repeat([np.ones(len(told)), *drawn], [len(of_step) for of_step in told], axis=1)
    scale = np.tile(features.sum(1), (len(counts), 1))
    for _ in range(REWEIGHTED):
        roots = np.sqrt(counts) / scale
        found = np.stack([nnls(root[:, None] * features, root * square)[0] for root in roots])
        scale = found @ features.T + 1e-3 * features.sum(1) * (found.sum(1)[:, None] + 1e-30)
    alone, together, right, wrong = found.T
    length, apart = (np.maximum(of, found.sum(1) / 1e6) for of in (alone + together, wrong))
    return np.stack([wrong / length, together / length, right / apart], axis=1)


def with_interval(estimated: Floats) -> dict[str, list[float]]:
    """Return each scale of `estimates` with the ends of its 95 % interval; none where unknown."""
    if not len(estimated):
        return {}
    ends = np.quantile(estimated[1:], (0.025, 0.975), axis=0)
    return dict(zip(SCALES, np.stack([estimated[0], *ends], 1).tolist(), strict=True))
