"""Adaptive n and m: each few steps, take the pair of a menu with most expected progress per second.

A run learns what a step of each pair costs, how often the prompts that were seen lately are solved,
and how noisy its gradients are. `expected_progress` says what a pair gains then.

Shapes: K = pairs of the menu, P = prompts seen lately, n = rollouts of a group, m = rollouts kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from pods.config.method_keys import NmConfig
from pods.method.noise_scale import Row, estimates, with_interval
from pods.method.progress import MEASURED, Floats, GradientScales, Pair, expected_progress
from pods.method.prompt_order import Outcome

PRIOR = (0.5, 0.5)  # Jeffreys': many prompts are solved always or never
DECAY = 0.5  # of what earlier visits to a prompt showed: the policy has changed since
LATELY = 32  # prompts
EVERY_STEPS = 5  # between choices
REMEMBERED = 15  # steps of a pair whose median is its cost, so that a busy moment decides nothing
NORMED = 64  # steps whose gradients' norms say how noisy they are
MARGIN = 1.05  # progress per second over the cheapest pair's for which that is left


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What an adaptive run knows: costs, success rates, and its last decision."""

    pair: int = 0  # index in the menu of the pair that the last step took
    steps: int = 0
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of the last steps of each pair, by its index in the menu."""
    posteriors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(alpha, beta) of the success rate of each problem seen lately, the latest last."""
    norms: Sequence[Sequence[Row]] = ()
    """Of each of the last steps, what its gradients' squared norms are made of."""
    seconds: Sequence[float] = ()  # (K,) expected at the last choice; none while each is tried
    progress: Sequence[float] = ()  # (K,) expected progress of a step at the last choice
    scales: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """`SCALES` as last estimated with the ends of their intervals, where known."""

    def choose(self, nm: NmConfig, groups: int) -> Self:
        """Return the state with the pair of the next step: first each pair once, then the best.

        The cheapest pair is left only for `MARGIN`. `groups` of a step count as prompts.
        """
        menu, known = nm.pairs(), self.scales
        if self.steps < len(menu):
            return replace(self, pair=self.steps)
        if self.steps % EVERY_STEPS and self.seconds:
            return self
        seconds = expected_seconds(menu, [self.costs[str(k)] for k in range(len(menu))])
        posteriors = np.array([*self.posteriors.values()], dtype=np.float64)
        if not known or self.steps % (10 * EVERY_STEPS) == 0:  # it takes longer than all the rest
            known = with_interval(estimates(self.norms))
        scales = GradientScales(*(ends[0] for ends in known.values())) if known else MEASURED
        progress = expected_progress(menu, posteriors, scales, groups)
        gains, cheapest = progress / seconds, seconds.argmin()
        pair = gains.argmax() if gains.max() > MARGIN * gains[cheapest] else cheapest
        made = {"seconds": seconds.tolist(), "progress": progress.tolist(), "scales": known}
        return replace(self, pair=int(pair), **made)

    def observe(self, outcomes: Sequence[Outcome], norms: Sequence[Row], seconds: float) -> Self:
        """Add what the step of the pair showed, and forget problems that were not seen lately."""
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
            norms=[*self.norms, norms][-NORMED:],
        )


def expected_seconds(menu: Sequence[Pair], costs: Sequence[Sequence[float]]) -> Floats:
    """Return the seconds of a step of each pair, (K,): base + price_n n + price_m m.

    Least squares through the median seconds of each pair's last steps (K lists), with the least
    prices where the menu determines none. A pair that gets no positive time has its own median.

    >>> expected_seconds([(16, 16), (32, 16), (64, 16)], [[1.0, 1.0, 9.0], [1.5], [2.5]]).round(3)
    array([1. , 1.5, 2.5])
    """
    medians = np.array([np.median(seconds) for seconds in costs])
    centred = np.array(menu, dtype=np.float64) - np.mean(menu, axis=0)
    prices = np.linalg.lstsq(centred, medians - medians.mean(), rcond=1e-9)[0]
    fitted = medians.mean() + centred @ prices
    return np.where(fitted > 0, fitted, medians)
