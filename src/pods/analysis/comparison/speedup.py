"""Speed-ups: how many times as fast one arm reaches an accuracy as another, by medians over runs.

ratio = median time of the baseline / median time of the arm: 2 means half the time. A run that
does not reach the target counts as infinitely late and is never dropped (as in AlgoPerf,
arXiv:2306.07179). The ratio is thus inf where half of the baseline's runs miss the target, 0 where
half of the arm's do, and NaN where both do or both start above it. `bound` then gives what is
certain: the ratio with the misses placed at the end of the window. Times lie on the lines between
evaluations. A target that is passed before the first evaluation after 0 is timed by that line
alone; default targets that both arms pass there are left out.

Shapes: S = runs, K = targets, D = resamples, G = grid points.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pods.analysis.outcomes import (
    RunCurve,
    Window,
    accuracy_at,
    crossings,
    knots,
    mean_curve,
    unmeasured,
)
from pods.analysis.resampling import Indices, percentile_interval
from pods.analysis.statistics import Floats

TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
PEAK_SHARE = 0.99
AUTHORS_POINTS = 12
Row = dict[str, Any]


def default_targets(arms: Iterable[Sequence[RunCurve]], span: Window) -> list[float]:
    """Return those `TARGETS` above every arm's mean at the start that at least one run reaches."""
    start = max(float(mean_curve(arm, np.array([span.start]))[0]) for arm in arms)
    runs = [curve for arm in arms for curve in arm]
    reached = np.isfinite(crossings(runs, np.array(TARGETS), span)[0].min(-1))
    return [t for t, some in zip(TARGETS, reached, strict=True) if some and t > start]


def measured_targets(
    arms: Sequence[Sequence[RunCurve]], targets: Sequence[float], span: Window
) -> list[float]:
    """Return the targets that some arm's median run passes after its first evaluation, or never."""
    early = np.all([unmeasured(arm, np.array(targets, float), span) for arm in arms], axis=0)
    return [target for target, left_out in zip(targets, early, strict=True) if not left_out]


def speedups(
    ours: Sequence[RunCurve],
    theirs: Sequence[RunCurve],
    targets: Sequence[float],
    span: Window,
    draws: tuple[Indices, Indices],
) -> list[Row]:
    """Time one arm against its baseline: to fixed targets, the baseline's peak, the authors' rule.

    Args:
        ours: runs of the arm.
        theirs: runs of the baseline.
        targets: accuracies.
        span: the window of both.
        draws: (D, S) indices of resampled runs of each; the same array where runs are paired.

    Returns:
        kind, target, seconds, reached, n, baseline_seconds, baseline_reached, baseline_n, ratio,
        low, high (95 % percentile interval over whole runs), bound, steps_ratio (the ratio in
        optimizer steps). Like the ratio, an end of 0 or inf is not a time but means that half of an
        arm's runs missed. There are no rows where the window has no length.
    """
    if span.end == span.start:
        return []
    levels, arms = np.array(targets, float), (ours, theirs)
    seconds = [crossings(arm, levels, span)[0] for arm in arms]
    medians = [median(times[:, drawn]) for times, drawn in zip(seconds, draws, strict=True)]
    rows = [
        _row("fixed", target, arms, span, resampled)
        for target, resampled in zip(targets, _ratio(*medians), strict=True)
    ]
    grid = authors_grid((*ours, *theirs), span)
    return [*rows, _peak(arms, span, draws), authors_rule(ours, theirs, grid)]


def _peak(
    arms: tuple[Sequence[RunCurve], Sequence[RunCurve]],
    span: Window,
    draws: tuple[Indices, Indices],
) -> Row:
    """Time both arms to 99 % of the peak of the baseline's mean curve, new in each resample."""
    baseline = arms[1]
    grid = knots(baseline, span)
    target = PEAK_SHARE * mean_curve(baseline, grid).max()
    weights = np.stack([(draws[1] == run).mean(1) for run in range(len(baseline))], -1)
    curves = np.stack([accuracy_at(curve, grid) for curve in baseline])
    targets = PEAK_SHARE * (weights @ curves).max(1)
    rows = np.arange(len(targets))[:, None]
    medians = [
        median(crossings(arm, targets, span)[0][rows, drawn])
        for arm, drawn in zip(arms, draws, strict=True)
    ]
    return _row("peak", float(target), arms, span, _ratio(*medians))


def _row(
    kind: str,
    target: float,
    arms: tuple[Sequence[RunCurve], Sequence[RunCurve]],
    span: Window,
    resampled: Floats,
) -> Row:
    """Make the row of one target, given its (D,) resampled ratios."""
    times = [crossings(arm, np.array([target]), span) for arm in arms]
    (ours, our_steps), (theirs, their_steps) = ((seconds[0], steps[0]) for seconds, steps in times)
    one, other = median(ours), median(theirs)
    ratio = _ratio(one, other)
    bound = _ratio(*(median(np.minimum(seconds, span.end)) for seconds in (ours, theirs)))
    low, high = percentile_interval(resampled)
    few = min(len(ours), len(theirs)) < 2
    return {
        "kind": kind,
        "target": target,
        "seconds": float(one),
        "reached": int(np.isfinite(ours).sum()),
        "n": len(ours),
        "baseline_seconds": float(other),
        "baseline_reached": int(np.isfinite(theirs).sum()),
        "baseline_n": len(theirs),
        "ratio": float(ratio),
        "low": np.nan if few else max(low, 0.0),
        "high": np.nan if few else high,
        "bound": float(bound) if np.isinf(ratio) or ratio == 0 else np.nan,
        "steps_ratio": float(_ratio(median(our_steps), median(their_steps))),
    }


def authors_grid(curves: Sequence[RunCurve], span: Window) -> Floats:
    """Return (G,) times after 0: those of the evaluations if all runs share them, else equal steps.

    There are 12 steps then, as many as the authors' runs on one GPU have checkpoints.
    """
    measured = {tuple(c.seconds[(c.seconds > 0) & (c.seconds <= span.end)]) for c in curves}
    if len(measured) == 1 and measured != {()}:
        return np.array(*measured)
    return np.linspace(span.start, span.end, AUTHORS_POINTS + 1)[1:]


def nearest(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """Return (S, G): each run's evaluation that is nearest to each time; the earlier of two."""
    return np.stack([c.accuracy[np.abs(c.seconds - grid[:, None]).argmin(1)] for c in curves])


def authors_rule(ours: Sequence[RunCurve], theirs: Sequence[RunCurve], grid: Floats) -> Row:
    """Compute the speed-up as the PODS authors do (arXiv:2504.13818).

    The time of an arm is the first one of the grid at which its mean over runs, each by its nearest
    evaluation, is at 99 % of the baseline's best or above; nothing is interpolated. Source: their
    scripts/plot.py:247-295 and scripts/plot-a100s.py:85-198 at 187f43b. There is no interval, since
    a grid time belongs to no run.

    Args:
        ours: runs of the arm.
        theirs: runs of the baseline.
        grid: (G,) times after 0.
    """
    one, other = (nearest(runs, grid).mean(0) for runs in (ours, theirs))
    target = PEAK_SHARE * other.max()
    times = [
        grid[curve >= target][0] if (curve >= target).any() else np.inf for curve in (one, other)
    ]
    reached = [int((nearest(runs, grid) >= target).any(1).sum()) for runs in (ours, theirs)]
    return {
        "kind": "authors",
        "target": float(target),
        "seconds": float(times[0]),
        "reached": reached[0],
        "n": len(ours),
        "baseline_seconds": float(times[1]),
        "baseline_reached": reached[1],
        "baseline_n": len(theirs),
        "ratio": float(times[1] / times[0]),
    }


def median(values: Floats) -> Floats:
    """Take the median along the last axis; inf where the misses reach the middle."""
    ordered, middle = np.sort(values, -1), values.shape[-1] // 2
    odd = values.shape[-1] % 2
    return ordered[..., middle] if odd else (ordered[..., middle - 1] + ordered[..., middle]) / 2


def _ratio(ours: Floats, theirs: Floats) -> Floats:
    """Divide times of the baseline by times of the arm; NaN for inf / inf and 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(theirs) / np.asarray(ours)
