"""How many times as fast one arm reaches an accuracy as another, by medians over runs.

ratio = median time of the baseline / median time of the arm: 2 means half the time. A run that
does not reach the target counts as infinitely late, and is never dropped (as in AlgoPerf,
arXiv:2306.07179). So the ratio is inf where half of the baseline's runs miss, 0 where half of the
arm's do, and NaN where both, or where both have it from the start. `bound` then says what is
certain: the ratio with the misses put at the end of the window. Times lie on the lines between
evaluations, so a target that is passed before the first one after 0 is timed by that line alone:
of the default targets, those that both arms pass there are left out.

Shapes: S = runs, K = targets, D = resamples, G = grid points.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pods.analysis.outcomes import (
    RunCurve,
    Window,
    at,
    crossings,
    knots,
    mean_curve,
    unmeasured,
)
from pods.analysis.resampling import Indices, percentile_interval
from pods.analysis.statistics import Floats

TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
PEAK_SHARE = 0.99
GRID_POINTS = 60  # for the authors' rule, where runs were not evaluated at equal times
Row = dict[str, Any]


def default_targets(arms: Sequence[Sequence[RunCurve]], span: Window) -> list[float]:
    """Those of `TARGETS` above every arm's mean at the start and reached by at least one run."""
    start = max(float(mean_curve(arm, np.array([span.start]))[0]) for arm in arms)
    runs = [curve for arm in arms for curve in arm]
    reached = np.isfinite(crossings(runs, np.array(TARGETS), span)[0].min(-1))
    return [t for t, some in zip(TARGETS, reached, strict=True) if some and t > start]


def timed(
    arms: Sequence[Sequence[RunCurve]], targets: Sequence[float], span: Window
) -> list[float]:
    """Those that at least one arm's median run passes after its first evaluation, or never."""
    early = [unmeasured(arm, np.array(targets, float), span) for arm in arms]
    passed = np.logical_and.reduce(early)
    return [target for target, left_out in zip(targets, passed, strict=True) if not left_out]


def speedups(
    ours: Sequence[RunCurve],
    theirs: Sequence[RunCurve],
    targets: Sequence[float],
    span: Window,
    draws: tuple[Indices, Indices],
) -> list[Row]:
    """Rows of one arm against its baseline: fixed targets, the baseline's peak, the authors' rule.

    Args:
        ours: runs of the arm.
        theirs: runs of the baseline.
        targets: accuracies.
        span: of both.
        draws: (D, S) places of resampled runs of each; the same array where runs are paired.

    Returns:
        kind, target, seconds, reached, n, baseline_seconds, baseline_reached, baseline_n, ratio,
        low, high (95 % percentile interval over whole runs), bound, steps_ratio: the ratio in
        optimizer steps. Like the ratio, an end of 0 or inf is no time but says that half of an
        arm's runs missed: then the true one is below, or above, what the window can show. No rows
        where the window has no length.
    """
    if span.end == span.start:
        return []
    rows = _fixed(ours, theirs, targets, span, draws) if targets else []
    return [*rows, _peak(ours, theirs, span, draws), authors_rule(ours, theirs, span)]


def _fixed(
    ours: Sequence[RunCurve],
    theirs: Sequence[RunCurve],
    targets: Sequence[float],
    span: Window,
    draws: tuple[Indices, Indices],
) -> list[Row]:
    levels = np.array(targets, float)
    one, other = crossings(ours, levels, span), crossings(theirs, levels, span)
    resampled = _ratio(_median(one[0][:, draws[0]]), _median(other[0][:, draws[1]]))
    return [
        _row("fixed", target, (one[0][k], one[1][k]), (other[0][k], other[1][k]), span, drawn)
        for k, (target, drawn) in enumerate(zip(targets, resampled, strict=True))
    ]


def _peak(
    ours: Sequence[RunCurve],
    theirs: Sequence[RunCurve],
    span: Window,
    draws: tuple[Indices, Indices],
) -> Row:
    """To 99 % of the peak of the baseline's mean curve, which each resample has a new one of."""
    grid = knots(theirs, span)
    target = PEAK_SHARE * mean_curve(theirs, grid).max()
    (one,), (one_steps,) = crossings(ours, np.array([target]), span)
    (other,), (other_steps,) = crossings(theirs, np.array([target]), span)
    weights = np.stack([(draws[1] == run).mean(1) for run in range(len(theirs))], -1)
    targets = PEAK_SHARE * (weights @ np.stack([at(curve, grid) for curve in theirs])).max(1)
    rows = np.arange(len(targets))[:, None]
    medians = [
        _median(crossings(curves, targets, span)[0][rows, places])
        for curves, places in zip((ours, theirs), draws, strict=True)
    ]
    return _row("peak", float(target), (one, one_steps), (other, other_steps), span,
                _ratio(*medians))  # fmt: skip


def _row(
    kind: str,
    target: float,
    ours: tuple[Floats, Floats],
    theirs: tuple[Floats, Floats],
    span: Window,
    resampled: Floats,
) -> Row:
    """One target, from (S,) seconds and (S,) steps of each arm and the (D,) resampled ratios."""
    one, other = _median(ours[0]), _median(theirs[0])
    ratio = _ratio(one, other)
    latest = [_median(np.minimum(x, span.end)) for x in (ours[0], theirs[0])]
    certain = np.isinf(ratio) or ratio == 0
    low, high = percentile_interval(resampled)
    few = min(len(ours[0]), len(theirs[0])) < 2
    return {
        "kind": kind,
        "target": target,
        "seconds": float(one),
        "reached": int(np.isfinite(ours[0]).sum()),
        "n": len(ours[0]),
        "baseline_seconds": float(other),
        "baseline_reached": int(np.isfinite(theirs[0]).sum()),
        "baseline_n": len(theirs[0]),
        "ratio": float(ratio),
        "low": np.nan if few else max(low, 0.0),
        "high": np.nan if few else high,
        "bound": float(_ratio(*latest)) if certain else np.nan,
        "steps_ratio": float(_ratio(_median(ours[1]), _median(theirs[1]))),
    }


def authors_rule(ours: Sequence[RunCurve], theirs: Sequence[RunCurve], span: Window) -> Row:
    """The speed-up as the PODS authors' plotting script has it (arXiv:2504.13818, plot.py).

    First time on the grid at which each mean curve is at 99 % of the baseline's peak or above;
    time 0 is no point, nothing is interpolated. The grid is the measured one where all runs were
    evaluated at the same times, else (and where that is empty) 60 equal steps. No interval: a
    grid time is no run's.
    """
    measured = {tuple(c.seconds[(c.seconds > 0) & (c.seconds <= span.end)])
                for c in (*ours, *theirs)}  # fmt: skip
    same = len(measured) == 1 and measured != {()}
    grid = np.array(*measured) if same else np.linspace(span.start, span.end, GRID_POINTS + 1)[1:]
    one, other = mean_curve(ours, grid), mean_curve(theirs, grid)
    target = PEAK_SHARE * other.max()
    times = [grid[curve >= target][0] if (curve >= target).any() else np.inf
             for curve in (one, other)]  # fmt: skip
    return {
        "kind": "authors, measured grid" if same else "authors, interpolated grid",
        "target": float(target),
        "seconds": float(times[0]),
        "reached": _reached(ours, target, span),
        "n": len(ours),
        "baseline_seconds": float(times[1]),
        "baseline_reached": _reached(theirs, target, span),
        "baseline_n": len(theirs),
        "ratio": float(times[1] / times[0]),
    }


def _reached(curves: Sequence[RunCurve], target: float, span: Window) -> int:
    """How many runs reach a target on their own curve."""
    return int(np.isfinite(crossings(curves, np.array([target]), span)[0]).sum())


def _median(values: Floats) -> Floats:
    """Along the last axis; inf where that reaches the middle."""
    ordered, middle = np.sort(values, -1), values.shape[-1] // 2
    odd = values.shape[-1] % 2
    return ordered[..., middle] if odd else (ordered[..., middle - 1] + ordered[..., middle]) / 2


def _ratio(ours: Floats, theirs: Floats) -> Floats:
    """Times of the baseline / times of the arm; NaN for inf / inf and 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(theirs) / np.asarray(ours)
