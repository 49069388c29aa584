"""What one run achieved: accuracy over the budget and at its end, time to a target.

Between evaluations a run's curve is a straight line; outside of them there is none. All runs of a
comparison are measured in the same window, which ends with the first record that ends.

Shapes: P = evaluations of a run, S = runs, K = targets, G = grid points.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pods.analysis.load import Study, by_run
from pods.analysis.statistics import Floats

OUTCOMES = {  # of a run; the first is the primary one
    "mean_accuracy": "mean accuracy",
    "final_accuracy": "final accuracy",
}
ROUNDING = 1e-12  # a mean of answers that is a target but for this has reached it


@dataclass(frozen=True)
class RunCurve:
    """A run's evaluations in the order of time."""

    run: str
    series: str
    seed: int
    seconds: Floats
    """(P,) training seconds."""
    steps: Floats
    """(P,) optimizer steps."""
    accuracy: Floats
    """(P,) fractions, the repeats averaged."""


@dataclass(frozen=True)
class Window:
    """Training seconds that the records of all compared runs cover."""

    start: float
    end: float


def run_curves(study: Study, series: str) -> list[RunCurve]:
    """The complete runs of a series, by seed."""
    rows = study.evaluations[
        (study.evaluations.series == series) & study.evaluations.run.isin(study.complete)
    ]
    rows = rows.sort_values(["train_seconds", "step"])
    columns = [rows[name].to_numpy(float) for name in ("train_seconds", "step", "accuracy")]
    seeds = rows.seed.to_numpy()
    curves = [
        RunCurve(run, series, int(seeds[of[0]]), *(column[of] for column in columns))
        for run, of in by_run(rows).items()
    ]
    return sorted(curves, key=lambda curve: (curve.seed, curve.run))


def window(curves: Iterable[RunCurve]) -> Window:
    """From the latest first evaluation (0, where every run has one) to the earliest last one.

    Raises:
        ValueError: some run ends before another one's first evaluation.
    """
    ends = [(curve.seconds[0], curve.seconds[-1]) for curve in curves]
    start, end = max(first for first, _ in ends), min(last for _, last in ends)
    if start > end:
        raise ValueError(f"runs share no training time: one ends at {end:g} s, another one is "
                         f"evaluated from {start:g} s on")  # fmt: skip
    return Window(float(start), float(end))


def mean_accuracy(curve: RunCurve, span: Window) -> float:
    """Area under the curve / length of the window (trapezoid rule on the measured points)."""
    inner = curve.seconds[(curve.seconds > span.start) & (curve.seconds < span.end)]
    grid = np.array([span.start, *inner, span.end])
    if span.end == span.start:
        return final_accuracy(curve, span)
    return float(np.trapezoid(at(curve, grid), grid) / (span.end - span.start))


def final_accuracy(curve: RunCurve, span: Window) -> float:
    """Accuracy at the end of the window."""
    return float(at(curve, np.array([span.end]))[0])


def plain_mean(curve: RunCurve, span: Window) -> float:
    """Mean of the evaluations after time 0 and up to the end of the window; NaN: there is none.

    For logs whose evaluations are evenly spaced, and only to set beside numbers made that way: it
    leaves out the start, and gives time after a late evaluation no weight.
    """
    inside = (curve.seconds > 0) & (curve.seconds <= span.end)
    return float(curve.accuracy[inside].mean()) if inside.any() else float("nan")


def at(curve: RunCurve, seconds: Floats) -> Floats:
    """(G,) accuracies at these times, which lie within the record."""
    return np.interp(seconds, curve.seconds, curve.accuracy)


def crossings(curves: Sequence[RunCurve], targets: Floats, span: Window) -> tuple[Floats, Floats]:
    """When each run's curve first reaches each target; inf: not in the window (censored).

    The common end censors, not each run's own: else the arm with the longer record would seem
    to reach what the other one was not watched for.

    Returns:
        (K, S) training seconds and (K, S) optimizer steps.
    """
    found = [_crossing(curve, targets, span.end) for curve in curves]
    return np.stack([f[0] for f in found], -1), np.stack([f[1] for f in found], -1)


def _crossing(curve: RunCurve, targets: Floats, end: float) -> tuple[Floats, Floats]:
    best = np.maximum.accumulate(curve.accuracy)
    place = np.searchsorted(best, targets - ROUNDING)  # of the first point at or above the target
    right = np.minimum(place, len(best) - 1)
    left = np.maximum(right - 1, 0)
    rise = curve.accuracy[right] - curve.accuracy[left]
    needed = targets - curve.accuracy[left]
    inside = (place > 0) & (place < len(best))  # the line from left to right crosses the target
    share = np.divide(needed, rise, out=np.ones_like(needed), where=inside).clip(max=1)
    seconds, steps = (x[left] + share * (x[right] - x[left]) for x in (curve.seconds, curve.steps))
    reached = (place < len(best)) & (seconds <= end)
    return np.where(reached, seconds, np.inf), np.where(reached, steps, np.inf)


def unmeasured(curves: Sequence[RunCurve], targets: Floats, span: Window) -> NDArray[np.bool_]:
    """(K,) targets that half of the runs or more pass before their first evaluation after time 0.

    The median time there is read off the first line alone, whose bend nobody saw.
    """
    first = np.array([c.seconds[c.seconds > 0].min(initial=np.inf) for c in curves])
    early = crossings(curves, targets, span)[0] < first
    return np.asarray(early.mean(-1) >= 0.5)


def mean_curve(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """(G,) accuracy at these times, mean over runs."""
    mean: Floats = np.stack([at(curve, grid) for curve in curves]).mean(0)
    return mean


def knots(curves: Sequence[RunCurve], span: Window) -> Floats:
    """(G,) times after 0 at which a mean curve can turn: there it has its peak."""
    times: Floats = np.unique(np.concatenate([*(curve.seconds for curve in curves), [span.end]]))
    return np.compress((times > 0) & (times >= span.start) & (times <= span.end), times)
