"""Outcomes of one run: mean accuracy over the budget, accuracy at its end, time to a target.

Between evaluations a run's curve is a straight line; it does not exist outside of them. All runs of
a comparison are measured in the same window, which ends where the first of their records ends.

Shapes: P = evaluations of a run, S = runs, K = targets, G = grid points.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pods.analysis.loading.study import Study
from pods.analysis.numbers.statistics import Floats
from pods.system.text import duration

OUTCOMES = {  # functions of this module and their titles; the first outcome is the primary one
    "mean_accuracy": "mean accuracy",
    "final_accuracy": "final accuracy",
}
MEASURES = {  # what a text says for accuracy where another metric takes its place
    "accuracy": "accuracy",
    "lenient": "accuracy by the authors' grader",
    "format": "share in the format",
    "both": "share correct and in the format",
}
ROUNDING = 1e-12  # an accuracy this far below a target has reached it


@dataclass(frozen=True)
class RunCurve:
    """A run's evaluations in the order of time."""

    run: str
    series: str
    seed: int
    seconds: Floats
    """(P,) training seconds, or what the study was chosen to be drawn over."""
    steps: Floats
    """(P,) training steps."""
    accuracy: Floats
    """(P,) fractions, averaged over the evaluation repeats, or the values of another metric."""


@dataclass(frozen=True)
class Window:
    """Training seconds, or amounts of the chosen x, that the records of all compared runs cover."""

    start: float
    end: float


def measure(study: Study) -> str:
    """Return what a text says for accuracy, such as pass@5 or share in the format."""
    return MEASURES.get(study.metric, study.metric)


def title_of(outcome: str, study: Study) -> str:
    """Return the title of an outcome of a study, such as mean share in the format."""
    return OUTCOMES[outcome].replace("accuracy", measure(study))


def amount(value: float, x: str = "train_seconds") -> str:
    """Show an amount of what curves are drawn over: a time on the training clock, or steps.

    >>> amount(2.5), amount(21600.0), amount(4800.0, "steps")
    ('2.5 s', '6 h 00 min', '4,800 steps')
    """
    if x != "train_seconds":
        return f"{value:,.0f} {x}"
    return duration(value) if value >= 120 else f"{value:.3g} s"


def run_curves(study: Study, series: str) -> list[RunCurve]:
    """Return the curves of the complete runs of a series, by seed."""
    return [curve for curve in all_curves(study, series) if curve.run in study.complete]


def all_curves(study: Study, series: str, metric: str = "accuracy") -> list[RunCurve]:
    """Return the curves of the runs of a series, by seed, also of those that are not complete."""
    rows = study.evaluations[study.evaluations.series == series].sort_values([study.x, "step"])
    columns = [rows[name].to_numpy(float) for name in (study.x, "step", metric)]
    seeds = rows.seed.to_numpy()
    curves = [
        RunCurve(str(run), series, int(seeds[at[0]]), *(column[at] for column in columns))
        for run, at in rows.groupby("run").indices.items()  # making a table of each would be slow
    ]
    return sorted(curves, key=lambda curve: (curve.seed, curve.run))


def window(curves: Iterable[RunCurve], until: float = math.inf) -> Window:
    """Span from the latest first evaluation (normally 0) to the earliest last one, or to `until`.

    `ValueError`: a run, or the window, ends before a run's first evaluation.
    """
    ends = [(curve.seconds[0], curve.seconds[-1]) for curve in curves]
    start, end = max(first for first, _ in ends), min(until, *(last for _, last in ends))
    if start > until:
        raise ValueError(f"until={until:g}: must be after the first evaluations, at {start:g}")
    if start > end:
        raise ValueError(
            f"the runs share no training time: one ends at {end:g}, the first evaluation of "
            f"another one is at {start:g}"
        )
    return Window(float(start), float(end))


def mean_accuracy(curve: RunCurve, span: Window) -> float:
    """Compute area under the curve / length of the window (trapezoids on the measured points)."""
    if span.end == span.start:
        return final_accuracy(curve, span)
    inner = curve.seconds[(curve.seconds > span.start) & (curve.seconds < span.end)]
    grid = np.array([span.start, *inner, span.end])
    return float(np.trapezoid(on_grid([curve], grid)[0], grid) / (span.end - span.start))


def final_accuracy(curve: RunCurve, span: Window) -> float:
    """Interpolate the accuracy at the end of the window."""
    return float(on_grid([curve], np.array([span.end]))[0, 0])


def on_grid(runs: Sequence[RunCurve], grid: Floats) -> Floats:
    """Interpolate the runs' values linearly at (G,) times, (S, G); NaN outside a run's record."""
    ends = {"left": np.nan, "right": np.nan}
    return np.stack([np.interp(grid, run.seconds, run.accuracy, **ends) for run in runs])


def crossings(curves: Sequence[RunCurve], targets: Floats, span: Window) -> tuple[Floats, Floats]:
    """Find when each run's curve first reaches each target; inf: not in the window (censored).

    Runs are censored at the common end and not at their own: otherwise an arm with longer records
    would seem to reach what the other one was not observed for.

    Returns:
        (K, S) training seconds and (K, S) training steps.
    """
    times = [_crossing(curve, targets, span.end) for curve in curves]
    return np.stack([seconds for seconds, _ in times], -1), np.stack([s for _, s in times], -1)


def _crossing(curve: RunCurve, targets: Floats, end: float) -> tuple[Floats, Floats]:
    best = np.maximum.accumulate(curve.accuracy)
    first = np.searchsorted(best, targets - ROUNDING)  # the first point at or above the target
    right = np.minimum(first, len(best) - 1)
    left = np.maximum(right - 1, 0)
    rise = curve.accuracy[right] - curve.accuracy[left]
    missing = targets - curve.accuracy[left]
    inside = (first > 0) & (first < len(best))  # the line from left to right crosses the target
    share = np.divide(missing, rise, out=np.ones_like(missing), where=inside).clip(max=1)
    seconds, steps = (x[left] + share * (x[right] - x[left]) for x in (curve.seconds, curve.steps))
    reached = (first < len(best)) & (seconds <= end)
    return np.where(reached, seconds, np.inf), np.where(reached, steps, np.inf)


def mean_curve(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """Average the accuracy of the runs at (G,) times."""
    mean: Floats = on_grid(curves, grid).mean(0)
    return mean


def knots(curves: Sequence[RunCurve], span: Window) -> Floats:
    """Return the (G,) times after 0 where a mean curve can bend, and so have its maximum."""
    times: Floats = np.unique(np.concatenate([*(curve.seconds for curve in curves), [span.end]]))
    return np.compress((times > 0) & (times >= span.start) & (times <= span.end), times)
