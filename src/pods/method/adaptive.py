"""Adaptive n and m: each few steps, take the pair of a menu with most expected progress per second.

A run learns what a step of each pair costs, how often the prompts that were seen lately are solved,
and how noisy the gradients of right and of wrong rollouts are. `expected_progress` says what a pair
gains then.

Shapes: K = pairs of the menu, P = prompts seen lately, n = rollouts of a group, m = rollouts kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pods.config.method_keys import NmConfig
from pods.method.prompt_order import Outcome

Floats = NDArray[np.float64]
Pair = tuple[int, int]

PRIOR = (0.5, 0.5)  # Jeffreys': many prompts are solved always or never
DECAY = 0.5  # of what earlier visits to a prompt showed: the policy has changed since
NOISE_DECAY = 0.9  # per step, of the noise of right and wrong rollouts
LATELY = 32  # prompts
EVERY_STEPS = 5  # between choices
REMEMBERED = 15  # steps of a pair whose median is its cost, so that a busy moment decides nothing
NOISE = 4.0
"""Mean square of one wrong rollout's gradient over that of the signal between prompts. Read off one
tiny model by `pods probe`; no interval, and no value for a language model, is known."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What an adaptive run knows: costs, success rates, and its last decision."""

    pair: int = 0  # index in the menu of the pair that the last step took
    steps: int = 0
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of the last steps of each pair, by its index in the menu."""
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of the success rate of each problem seen lately, the latest last."""
    noise: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
    """Decayed sums over right rollouts of their gradient noise and of 1, and over wrong ones."""
    seconds: Sequence[float] = ()  # (K,) expected at the last choice; none while each is tried
    progress: Sequence[float] = ()  # (K,) expected progress of a step at the last choice

    def choose(self, nm: NmConfig) -> Self:
        """Return the state with the pair of the next step: first each pair once, then the best."""
        menu = nm.pairs()
        if self.steps < len(menu):
            return replace(self, pair=self.steps)
        if self.steps % EVERY_STEPS and self.seconds:
            return self
        seconds = expected_seconds(menu, [self.costs[str(k)] for k in range(len(menu))])
        posteriors = np.array([*self.posteriors.values()], dtype=np.float64)
        progress = expected_progress(menu, posteriors, self.noise_ratio())
        pair = int((progress / seconds).argmax())
        return replace(self, pair=pair, seconds=seconds.tolist(), progress=progress.tolist())

    def noise_ratio(self) -> float:
        """Return the noise of a right rollout over that of a wrong one; 1 where one is unseen."""
        right, rights, wrong, wrongs = self.noise
        return (right / rights) / (wrong / wrongs) if min(self.noise) > 0 else 1.0

    def observe(self, outcomes: Sequence[Outcome], noise: Sequence[float], seconds: float) -> Self:
        """Add what the step of the pair showed, and forget problems that were not seen lately.

        `noise`: sums over the right rollouts of their `gradient_noise` and 1, and over the wrong.
        """
        posteriors, pair = dict(self.posteriors), str(self.pair)
        for outcome in outcomes:
            before = posteriors.pop(str(outcome.problem), PRIOR)
            posteriors[str(outcome.problem)] = outcome.posterior(before, PRIOR, DECAY)
        costs = [*self.costs.get(pair, ()), seconds][-REMEMBERED:]
        return replace(
            self,
            steps=self.steps + 1,
            costs={**self.costs, pair: costs},
            posteriors=dict([*posteriors.items()][-LATELY:]),
            noise=[NOISE_DECAY * a + b for a, b in zip(self.noise, noise, strict=True)],
        )


def gradient_noise(logprobs: Sequence[NDArray[np.float32]]) -> Floats:
    """Return a measure of each rollout's squared gradient from its log-probs alone, (n,).

    By the logits, the gradient of a token's log-prob has the squared length (1 - pi)^2 + the sum of
    the other tokens' pi^2. The first part is summed, over the squared number of tokens.

    >>> gradient_noise([np.log([0.5, 0.5]), np.log([1.0, 1.0])]).round(3)
    array([0.125, 0.   ])
    """
    lengths = np.array([len(each) for each in logprobs])
    squares = (1 - np.exp(np.concatenate(logprobs).astype(np.float64))) ** 2
    return np.asarray(np.add.reduceat(squares, np.cumsum(lengths) - lengths) / lengths**2)


def expected_seconds(menu: Sequence[Pair], costs: Sequence[Sequence[float]]) -> Floats:
    """Return the seconds of a step of each pair, (K,): base + price_n n + price_m m.

    Least squares through the median seconds of each pair's last steps (K lists), with the least
    prices where the menu determines none. A pair that gets no positive time has its own median.

    >>> expected_seconds([(16, 16), (32, 16), (64, 16)], [[1.0, 1.0, 9.0], [1.5], [2.5]]).round(3)
    array([1. , 1.5, 2.5])
    """
    medians = np.array([np.median(seconds) for seconds in costs])
    pairs = np.array(menu, dtype=np.float64)
    centred = pairs - pairs.mean(0)
    prices = np.linalg.lstsq(centred, medians - medians.mean(), rcond=1e-9)[0]
    fitted = medians.mean() + centred @ prices
    return np.where(fitted > 0, fitted, medians)


def expected_progress(menu: Sequence[Pair], posteriors: Floats, noise_ratio: float) -> Floats:
    """Return what a step of each pair is expected to gain, (K,), up to a factor that all share.

    With rewards of 0 and 1, let a share f of the kept rollouts be right. Normalised by their std,
    the advantages weigh the mean gradient of the right rollouts against that of the wrong ones by
    s = sqrt(f (1 - f)), which is the signal. Each right rollout enters with sqrt((1 - f) / f) / m,
    each wrong one with its inverse over m, so that the noise of a group with both kinds is
    ((1 - f) noise_ratio + f) / m: **a wrong rollout is less likely, and its gradient longer**.

    Adam divides a step by the root of its mean square, in which the signal's direction differs from
    prompt to prompt: progress = E[s] / sqrt(E[s^2] + `NOISE` E[noise]). f is as near to 1/2 as the
    number of right rollouts allows (max-variance and balanced rules), and that is beta-binomial by
    `posteriors`, (P, 2) alpha and beta. The formula is ours; experiments/adaptive measures it.

    >>> half = np.array([[1e6, 1e6]])  # nearly all groups are balanced, so only the noise differs
    >>> expected_progress([(64, 16), (256, 64)], half, 1.0).round(3)
    array([0.707, 0.894])
    """
    gains = []
    for n, m in menu:
        right = np.arange(n + 1)  # of the n rollouts
        share = np.clip(m // 2, m - (n - right), right) / m  # of the m kept, nearest to half
        mixed = (share > 0) & (share < 1)
        chances = beta_binomial(n, posteriors).mean(0)
        variance = share * (1 - share)
        noise = mixed * ((1 - share) * noise_ratio + share) / m
        square = chances @ (variance + NOISE * noise)
        gains.append(chances @ np.sqrt(variance) / np.sqrt(square) if square > 0 else 0.0)
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
