"""What a step of n rollouts, of which m are kept, is expected to gain: the law of n and m.

src/pods_lab/advise/README.md derives it and says what it assumes.

Shapes: K = pairs (n, m), P = prompts, n = rollouts of a group, m = rollouts kept of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pods.types import Floats
from pods_lab.price.model import Pair

Moments = Callable[[int, int], Floats]
"""`moments(n, m)`, (4, n + 1): of a group with 0, 1, ..., n right rollouts the mean signal s, the
mean of s^2, and the weight of the noise of right rollouts and of wrong ones."""


@dataclass(frozen=True, slots=True)
class GradientScales:
    """How noisy gradients are, where d is the mean of right rollouts' less that of wrong ones'."""

    noise: float
    """Mean square of a wrong rollout's gradient around the mean of the wrong, over that of d."""
    shared: float  # rho, the inner product of the d of two prompts over the mean square of d
    ratio: float  # noise of a right rollout over that of a wrong one
    own: float = 1.0  # slope of kappa in p (1 - p), of which 0.7 to 2.9 were measured; 0 is flat


MEASURED = GradientScales(2.7, 0.06, 0.25)
"""All but `own` by `pods probe` at the embedded task's start. No language model's are known."""


def balanced(n: int, m: int) -> Floats:
    """Return the moments of rules that keep as near to half right ones as they can, as `Moments`.

    With rewards of 0 and 1, let a share f of the kept rollouts be right. Normalised by their std,
    right ones have the advantage sqrt((1 - f) / f), and wrong ones the negative of its inverse, so
    that the signal is sqrt(f (1 - f)), and the noise ((1 - f) of a right + f of a wrong one) / m.

    >>> balanced(2, 2).round(3)
    array([[0.  , 0.5 , 0.  ],
           [0.  , 0.25, 0.  ],
           [0.  , 0.25, 0.  ],
           [0.  , 0.25, 0.  ]])
    """
    right = np.arange(n + 1)  # of the n rollouts
    share = np.clip(m // 2, m - (n - right), right) / m  # of the m kept, nearest to half
    mixed = (share > 0) & (share < 1)
    square = share * (1 - share)
    return np.stack([np.sqrt(square), square, mixed * (1 - share) / m, mixed * share / m])


def expected_progress(
    menu: Sequence[Pair],
    posteriors: Floats,
    scales: GradientScales,
    prompts: int,
    moments: Moments = balanced,
) -> Floats:
    """Return what a step of each pair is expected to gain, (K,), up to a factor that all share.

    A group adds s d to the gradient, and noise. Accuracy moves by s kappa, kappa = <d, the gradient
    of accuracy>, and Adam divides a step by the root of its mean square, in which the signals of
    the B `prompts` of a step differ in direction:

        E[s kappa] / sqrt((1 - 1/B) shared E[s]^2 + (E[s^2] + noise E[ratio right + wrong]) / B),

    with kappa = (1 - own) E[p (1 - p)] + own p (1 - p). Success rates p have the
    `posteriors` alpha and beta, (P, 2), so that the number of right rollouts is beta-binomial, and
    a factor p (1 - p) shifts both by one. The law is ours.

    >>> half = np.array([[1e6, 1e6]])  # nearly all groups are balanced, so only the noise differs
    >>> expected_progress([(64, 16), (256, 64)], half, GradientScales(4.0, 0.1, 1.0), 1).round(3)
    array([0.177, 0.224])
    """
    alpha, beta = posteriors.T
    variance = alpha * beta / ((alpha + beta) * (alpha + beta + 1))  # E[p (1 - p)]
    gains = []
    for n, m in menu:
        signal, square, right, wrong = moments(n, m)
        chances = beta_binomial(n, posteriors).mean(0)
        tilted = variance @ beta_binomial(n, posteriors + 1) / len(posteriors)
        mean = chances @ signal
        reached = (1 - scales.own) * variance.mean() * mean + scales.own * (tilted @ signal)
        mean_square = chances @ (square + scales.noise * (scales.ratio * right + wrong))
        step_square = (1 - 1 / prompts) * scales.shared * mean**2 + mean_square / prompts
        gains.append(reached / np.sqrt(step_square) if step_square > 0 else 0.0)
    return np.array(gains)


def beta_binomial(n: int, posteriors: Floats) -> Floats:
    """Return the chances that 0, 1, ..., n of a prompt's n rollouts are right, (P, n + 1).

    By the ratio of neighbours, so that no gamma function is needed:
    P(k + 1) / P(k) = (n - k) (k + alpha) / ((k + 1) (beta + n - k - 1)).

    >>> beta_binomial(2, np.array([[1.0, 1.0]])).round(3)  # all counts are as likely
    array([[0.333, 0.333, 0.333]])
    """
    alpha, beta = posteriors[:, :1], posteriors[:, 1:]
    k = np.arange(n)
    ratios = np.log((n - k) * (k + alpha) / ((k + 1) * (beta + n - k - 1)))
    logs = np.concatenate([np.zeros((len(posteriors), 1)), ratios.cumsum(1)], axis=1)
    chances = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(chances / chances.sum(1, keepdims=True))
