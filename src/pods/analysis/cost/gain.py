"""How much more a dearer step learns: steps to accuracies that both arms reach, against its cost.

Shapes: S = runs of an arm, K = accuracies, D = resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pods.analysis.outcomes import RunCurve, Window, crossings, unmeasured
from pods.analysis.resampling import Indices, percentile_interval, resamples
from pods.analysis.statistics import Floats

SHARES = np.linspace(0.5, 1.0, 6)  # of the way from the start to what most runs of both reach
LEAST_RISE = 0.02  # in accuracy; below, noise alone crosses the targets
MARGIN = 1.05  # a smaller factor is no verdict
DRAWS = 2000
DEPENDS = "depends on the accuracy"
WHOLE = Window(0.0, np.inf)  # each run's own record: steps are compared, not seconds


@dataclass(frozen=True)
class Gain:
    """How many times fewer steps the dear arm needs than the cheap one."""

    targets: Floats
    """(K,) accuracies."""
    ratios: Floats
    """(K,) median steps of cheap / median steps of dear."""
    ratio: float
    """Their median."""
    factors: Floats
    """(K,) ratios / cost: above 1 the dear arm is there first."""
    factor: float
    low: float
    high: float
    """95 % of `factor`, by resampling whole runs of both arms, their accuracies with their time."""
    runs: tuple[int, int]
    """Of dear and cheap."""

    @property
    def verdict(self) -> str:
        """`dear`, `cheap`, or why neither can be named."""
        if self.factors.max() > MARGIN and self.factors.min() < 1 / MARGIN:
            return DEPENDS
        if self.low <= 1 <= self.high:
            return "within noise"
        if 1 / MARGIN <= self.factor <= MARGIN:
            return "within 5 %"
        return "dear" if self.factor > 1 else "cheap"


def common_targets(curves: Sequence[Sequence[RunCurve]]) -> Floats:
    """(K,) accuracies that more than half of the runs of each arm reach, above both starts."""
    start = max(float(np.median([c.accuracy[0] for c in arm])) for arm in curves)
    top = min(float(np.sort([c.accuracy.max() for c in arm])[(len(arm) - 1) // 2])
              for arm in curves)  # fmt: skip
    return start + (top - start) * SHARES if top - start >= LEAST_RISE else np.array([])


def measured_only(curves: Sequence[Sequence[RunCurve]], targets: Floats) -> Floats:
    """Those targets that neither arm's median run passes before its first evaluation after 0."""
    early = np.any([unmeasured(arm, targets, WHOLE) for arm in curves], axis=0)
    return np.compress(~early, targets)


def gain(curves: Sequence[Sequence[RunCurve]], seconds: Sequence[Floats], targets: Floats) -> Gain:
    """Ratios of median steps to each target, of cheap to dear, against the ratio of step times.

    Args:
        curves: of the runs of dear and of cheap.
        seconds: (S,) a step, of the runs of each.
        targets: (K,).
    """
    steps = [crossings(of_arm, targets, WHOLE)[1] for of_arm in curves]  # (K, S) each
    sizes = [len(of_arm) for of_arm in curves]
    everyone = [np.arange(size)[None] for size in sizes]
    ratios, costs = _ratios(steps, seconds, everyone)
    drawn, drawn_costs = _ratios(steps, seconds, resamples(sizes, DRAWS, seed=0))
    low, high = percentile_interval(np.median(drawn, axis=0) / drawn_costs)
    ratio = float(np.median(ratios))
    return Gain(targets, ratios[:, 0], ratio, ratios[:, 0] / costs[0], ratio / float(costs[0]),
                low, high, (sizes[0], sizes[1]))  # fmt: skip


def _ratios(
    steps: Sequence[Floats], seconds: Sequence[Floats], places: Sequence[Indices]
) -> tuple[Floats, Floats]:
    """(K, D) ratios of median steps, cheap to dear, and (D,) of mean seconds, dear to cheap."""
    dear, cheap = (np.median(x[:, drawn], axis=-1) for x, drawn in zip(steps, places, strict=True))
    dear_cost, cheap_cost = (x[drawn].mean(-1) for x, drawn in zip(seconds, places, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):  # a resample may reach nothing
        return cheap / dear, dear_cost / cheap_cost
