"""What a dearer step must learn to be worth its time, and whether it does: which arm wins, and why.

Of two arms the one with the longer step, `dear`, wins where it needs fewer steps by more than its
step costs more: factor = (steps of cheap / steps of dear) / (seconds of dear / seconds of cheap).

Shapes: S = runs of an arm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.cost.gain import LEAST_RISE, Gain, common_targets, gain, measured_only
from pods.analysis.cost.model import CostModel, predict
from pods.analysis.outcomes import RunCurve
from pods.analysis.statistics import mean_and_stderr

LEAST_RUNS = 3  # of an arm
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
class Pair:
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


def pairs(model: CostModel, curves_of: Curves, cells: Sequence[tuple[int, int]]) -> Iterator[Pair]:
    """Each (n, m) with m < n against m→m (fewer rollouts) and n→n (all trained on).

    Args:
        model: of the runs.
        curves_of: gives the complete runs of a series.
        cells: (n, m); those that have runs are taken as measured, others from the fit, and what
            cannot be told is left out, as are arms whose steps do not all cost alike.
    """
    for n, m in cells:
        for size in (m, n) if m < n else ():
            for ours in _arms(model, n, m):
                for theirs in _arms(model, size, size):
                    if not np.isnan(ours.mean + theirs.mean):
                        yield weigh(curves_of, ours, theirs)


def _arms(model: CostModel, n: int, m: int) -> list[Arm]:
    runs = model.steady
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


def weigh(curves_of: Curves, one: Arm, other: Arm) -> Pair:
    """Cost of one arm's step in the other's, and the gain where both ran often enough."""
    dear, cheap = sorted((one, other), key=lambda arm: -arm.mean)
    if not (dear.measured and cheap.measured):
        return Pair(dear, cheap, None, "not both were run")
    curves = [
        [curve for curve in curves_of(arm.name) if curve.run in arm.seconds.index]
        for arm in (dear, cheap)
    ]
    if min(map(len, curves)) < LEAST_RUNS:
        return Pair(dear, cheap, None, f"under {LEAST_RUNS} complete runs of one")
    targets = common_targets(curves)
    if not len(targets):
        return Pair(dear, cheap, None, f"under {100 * LEAST_RISE:g} points are learned")
    targets = measured_only(curves, targets)
    if not len(targets):
        return Pair(dear, cheap, None, "what both reach comes before the first checkpoint")
    seconds = [arm.seconds[[curve.run for curve in of_arm]].to_numpy(float)
               for arm, of_arm in zip((dear, cheap), curves, strict=True)]  # fmt: skip
    return Pair(dear, cheap, gain(curves, seconds, targets), "")
