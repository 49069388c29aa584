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
from pods.system.text import duration
from pods.types import Floats

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

    @property
    def outcomes(self) -> list[str]:
        """The keys of `OUTCOMES` that say something: without a length the mean is the end."""
        return ["final_accuracy"] if self.end == self.start else list(OUTCOMES)


def measure(study: Study) -> str:
    """Return what a text says for accuracy, such as share in the format."""
    return MEASURES.get(study.metric, study.metric)


def title_of(outcome: str, study: Study) -> str:
    """Return the title of an outcome of a study, such as mean share in the format."""
    title = OUTCOMES[outcome].replace("accuracy", measure(study))
    return title if study.prices is None else f"{title} {study.clock}"


def amount(value: float, x: str = "train_seconds") -> str:
    """Show an amount of what curves are drawn over: a time on the training clock, money, or steps.

    >>> amount(2.5), amount(21600.0), amount(4800.0, "steps")
    ('2.5 s', '6 h 00 min', '4,800 steps')
    >>> amount(0.01234, "dollars"), amount(1234.5, "dollars")
    ('$0.0123', '$1,234.50')
    """
    if x == "dollars":
        return f"${value:.3g}" if value < 100 else f"${value:,.2f}"
    if x != "train_seconds":
        return f"{value:,.0f} {x}"
    return duration(value) if value >= 120 else f"{value:.3g} s"


def run_curves(study: Study, series: str) -> list[RunCurve]:
    """Return the curves of the complete runs of a series, by seed."""
    return [curve for curve in all_curves(study, series) if curve.run in study.complete]


def all_curves(study: Study, series: str, metric: str = "accuracy") -> list[RunCurve]:
    """Return the curves of the runs of a series, by seed, also of those that are not complete."""
    rows = study.evaluations[study.evaluations.series == series].sort_values([study.x, "step"])
    seeds = rows.seed.to_numpy()
    seconds = rows[study.x].to_numpy(float)
    steps = rows["step"].to_numpy(float)
    values = rows[metric].to_numpy(float)

    curves = []
    for run, places in rows.groupby("run").indices.items():  # a table of each run would be slow
        curve = RunCurve(
            run=str(run),
            series=series,
            seed=int(seeds[places[0]]),
            seconds=seconds[places],
            steps=steps[places],
            accuracy=values[places],
        )
        curves.append(curve)
    return sorted(curves, key=lambda curve: (curve.seed, curve.run))


def window(curves: Iterable[RunCurve], until: float = math.inf) -> Window:
    """Span from the latest first evaluation (normally 0) to the earliest last one, or to `until`.

    `ValueError`: a run, or the window, ends before a run's first evaluation.
    """
    curves = list(curves)
    start = max(curve.seconds[0] for curve in curves)
    end = min(curve.seconds[-1] for curve in curves)
    end = min(end, until)

    if start > until:
        raise ValueError(f"until={until:g}: must be after the first evaluations, at {start:g}")
    if start > end:
        raise ValueError(
            f"the runs share no training time: one ends at {end:g}, the first evaluation of "
            f"another one is at {start:g}"
        )
    return Window(float(start), float(end))


def values_of(outcome: str, curves: Iterable[RunCurve], span: Window) -> Floats:
    """Return the (S,) values of an outcome, which is a key of `OUTCOMES`."""
    functions = {"mean_accuracy": mean_accuracy, "final_accuracy": final_accuracy}
    function = functions[outcome]
    return np.array([function(curve, span) for curve in curves], float)


def mean_accuracy(curve: RunCurve, span: Window) -> float:
    """Compute area under the curve / length of the window (trapezoids on the measured points)."""
    if span.end == span.start:
        return final_accuracy(curve, span)

    inside = (curve.seconds > span.start) & (curve.seconds < span.end)
    grid = np.concatenate([[span.start], curve.seconds[inside], [span.end]])
    area = np.trapezoid(on_grid([curve], grid)[0], grid)
    return float(area / (span.end - span.start))


def final_accuracy(curve: RunCurve, span: Window) -> float:
    """Interpolate the accuracy at the end of the window."""
    return float(on_grid([curve], np.array([span.end]))[0, 0])


def on_grid(runs: Sequence[RunCurve], grid: Floats) -> Floats:
    """Interpolate the runs' values linearly at (G,) times, (S, G); NaN outside a run's record."""
    lines = []
    for run in runs:
        lines.append(np.interp(grid, run.seconds, run.accuracy, left=np.nan, right=np.nan))
    return np.stack(lines)


def crossings(curves: Sequence[RunCurve], targets: Floats, span: Window) -> tuple[Floats, Floats]:
    """Find when each run's curve first reaches each target; inf: not in the window (censored).

    Runs are censored at the common end and not at their own: otherwise an arm with longer records
    would seem to reach what the other one was not observed for. NaN: unknown, since the target is
    NaN, or since a NaN interrupts the curve before it has reached the target.

    Returns:
        (K, S) training seconds and (K, S) training steps.
    """
    seconds = []
    steps = []
    for curve in curves:
        run_seconds, run_steps = _crossing(curve, targets, span.end)
        seconds.append(run_seconds)
        steps.append(run_steps)
    return np.stack(seconds, -1), np.stack(steps, -1)


def _crossing(curve: RunCurve, targets: Floats, end: float) -> tuple[Floats, Floats]:
    """Return the (K,) seconds and steps at which one run first reaches the targets."""
    unknown = np.isnan(curve.accuracy)
    known = int(np.append(unknown, True).argmax())  # the number of points before a NaN
    last = curve.seconds[:known].max(initial=-np.inf)
    interrupted = known < len(unknown) and last < end
    missed = np.nan if interrupted else np.inf
    absent = np.where(np.isnan(targets), np.nan, missed)
    if known == 0:
        return absent, absent

    accuracy = curve.accuracy[:known]
    best = np.maximum.accumulate(accuracy)
    first = np.searchsorted(best, targets - ROUNDING)  # the first point at or above the target
    after = np.minimum(first, known - 1)
    before = np.maximum(after - 1, 0)

    rise = accuracy[after] - accuracy[before]
    lacking = targets - accuracy[before]
    inside = (first > 0) & (first < known)  # the line between both points crosses the target
    share = np.divide(lacking, rise, out=np.ones_like(lacking), where=inside).clip(max=1)

    seconds = curve.seconds[before] + share * (curve.seconds[after] - curve.seconds[before])
    steps = curve.steps[before] + share * (curve.steps[after] - curve.steps[before])
    reached = (first < known) & (seconds <= end)
    return np.where(reached, seconds, absent), np.where(reached, steps, absent)


def mean_curve(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """Average the accuracy of the runs at (G,) times."""
    mean: Floats = on_grid(curves, grid).mean(0)
    return mean


def knots(curves: Sequence[RunCurve], span: Window) -> Floats:
    """Return the (G,) times after 0 where a mean curve can bend, and so have its maximum."""
    points = [curve.seconds for curve in curves]
    times: Floats = np.unique(np.append(np.concatenate(points), span.end))
    inside = (times > 0) & (times >= span.start) & (times <= span.end)
    return times[inside]
