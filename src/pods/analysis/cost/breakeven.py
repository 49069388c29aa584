"""What a dearer step must learn to be worth its time, and whether it does: which arm wins, and why.

Of two arms the one with the longer step, `dear`, wins where it needs fewer steps by more than its
step costs more: factor = (steps of cheap / steps of dear) / (seconds of dear / seconds of cheap).

Shapes: S = runs of an arm, K = accuracies, D = resamples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.cost.model import CostModel, predict
from pods.analysis.outcomes import RunCurve, Window, crossings
from pods.analysis.resampling import Indices, percentile_interval, resamples
from pods.analysis.statistics import Floats, mean_and_stderr

SHARES = np.linspace(0.5, 1.0, 6)  # of the way from the start to what most runs of both reach
LEAST_RISE = 0.02  # in accuracy; below, noise alone crosses the targets
LEAST_RUNS = 3  # of an arm
MARGIN = 1.05  # a smaller factor is no verdict
DRAWS = 2000
DEPENDS = "depends on the accuracy"
Curves = Callable[[str], Sequence[RunCurve]]


@dataclass(frozen=True)
class Arm:
    """What a step of one arm costs."""

    name: str
    """Its series, or n→m where no run has these."""
    n: int
    m: int
    seconds: pd.Series
    """(S,) mean seconds a step, by run; one predicted value where there are none."""
    phases: dict[str, float]
    measured: bool
    outside: bool
    """Predicted, and outside of what was measured."""

    @property
    def mean(self) -> float:
        """Seconds a step."""
        return float(self.seconds.mean())

    @property
    def stderr(self) -> float:
        """Of the mean over runs; NaN where there are not two."""
        return float(mean_and_stderr(self.seconds.to_numpy(float)[:, None])[1][0])


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


@dataclass(frozen=True)
class Comparison:
    """Two arms on one machine."""

    dear: Arm
    cheap: Arm
    gain: Gain | None
    why_not: str
    """Why there is no measured gain."""

    @property
    def cost(self) -> tuple[float, float]:
        """Steps of cheap that a step of dear costs, and its standard error (NaN: not known)."""
        ratio = self.dear.mean / self.cheap.mean
        one, other = (arm.stderr / arm.mean for arm in (self.dear, self.cheap))
        return ratio, ratio * float(np.hypot(one, other))

    @property
    def extra(self) -> dict[str, float]:
        """Seconds that each phase takes longer in dear than in cheap, the largest first."""
        both = self.dear.phases.keys() & self.cheap.phases.keys()
        more = {phase: self.dear.phases[phase] - self.cheap.phases[phase] for phase in both}
        return dict(sorted(more.items(), key=lambda item: -abs(item[1])))


def comparisons(
    model: CostModel, curves_of: Curves, cells: Sequence[tuple[int, int]]
) -> Iterator[Comparison]:
    """Each (n, m) with m < n against m→m (fewer rollouts) and n→n (all trained on).

    Args:
        model: of the runs.
        curves_of: gives the complete runs of a series.
        cells: (n, m); those that have runs are taken as measured, others from the fit, and what
            cannot be told is left out.
    """
    for n, m in cells:
        for size in (m, n) if m < n else ():
            for ours in _arms(model, n, m):
                for theirs in _arms(model, size, size):
                    if not np.isnan(ours.mean + theirs.mean):
                        yield compare(curves_of, ours, theirs)


def _arms(model: CostModel, n: int, m: int) -> list[Arm]:
    runs = model.measured
    found = [
        Arm(str(series), n, m, of.set_index("run").seconds,
            {phase: float(of[f"seconds/{phase}"].mean()) for phase in model.phases},
            measured=True, outside=False)
        for series, of in runs[(runs.n == n) & (runs.m == m)].groupby("series", sort=False)
    ]  # fmt: skip
    if found:
        return found
    guess = predict(model, n, m)
    seconds = pd.Series([guess.seconds])
    return [Arm(f"{n}→{m}", n, m, seconds, guess.phases, measured=False, outside=guess.outside)]


def compare(curves_of: Curves, one: Arm, other: Arm) -> Comparison:
    """Cost of one arm's step in the other's, and the gain where both ran often enough."""
    dear, cheap = sorted((one, other), key=lambda arm: -arm.mean)
    if not (dear.measured and cheap.measured):
        return Comparison(dear, cheap, None, "not both were run")
    curves = [
        [curve for curve in curves_of(arm.name) if curve.run in arm.seconds.index]
        for arm in (dear, cheap)
    ]
    if min(map(len, curves)) < LEAST_RUNS:
        return Comparison(dear, cheap, None, f"under {LEAST_RUNS} complete runs of one")
    targets = common_targets(curves)
    if not len(targets):
        return Comparison(dear, cheap, None, f"under {100 * LEAST_RISE:g} points are learned")
    found = gain((dear, cheap), curves, targets)
    return Comparison(dear, cheap, found, "")


def common_targets(curves: Sequence[Sequence[RunCurve]]) -> Floats:
    """(K,) accuracies that more than half of the runs of each arm reach, above both starts."""
    start = max(float(np.median([c.accuracy[0] for c in arm])) for arm in curves)
    top = min(float(np.sort([c.accuracy.max() for c in arm])[(len(arm) - 1) // 2])
              for arm in curves)  # fmt: skip
    return start + (top - start) * SHARES if top - start >= LEAST_RISE else np.array([])


def gain(arms: Sequence[Arm], curves: Sequence[Sequence[RunCurve]], targets: Floats) -> Gain:
    """Ratios of median steps to each target, of cheap to dear, against the ratio of step times.

    Args:
        arms: dear and cheap.
        curves: of the runs of each.
        targets: (K,).
    """
    whole = Window(0.0, np.inf)  # each run's own record: steps are compared, not seconds
    steps = [crossings(of_arm, targets, whole)[1] for of_arm in curves]  # (K, S) each
    seconds = [arm.seconds[[c.run for c in of_arm]].to_numpy(float)
               for arm, of_arm in zip(arms, curves, strict=True)]  # fmt: skip
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
