"""Speed-ups: how many times as fast one arm reaches an accuracy as another, by medians over runs.

ratio = median time of the baseline / median time of the arm: 2 means half the time. A run that
does not reach the target counts as infinitely late and is never dropped (as in AlgoPerf,
arXiv:2306.07179). The ratio is thus inf where half of the baseline's runs miss the target, 0 where
half of the arm's do, and NaN where both do or one starts above it. `bound` then gives what is
certain: the ratio with the misses placed at the end of the window. Times lie on the lines between
evaluations. A target that is passed before the first evaluation after 0 is timed by that line
alone; default targets that both arms pass there are left out.

Shapes: S = runs, K = targets, D = resamples, G = grid points.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pods.analysis.numbers import outcomes
from pods.analysis.numbers.outcomes import RunCurve, Window, crossings
from pods.analysis.numbers.statistics import Floats, Indices, percentile_interval

TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
PEAK_SHARE = 0.99
MOST_KNOTS = 500  # of a mean curve among which its peak is looked for
Row = dict[str, Any]
Sides = tuple[Sequence[RunCurve], Sequence[RunCurve]]
"""The runs of an arm and of its baseline."""


def default_targets(arms: Iterable[Sequence[RunCurve]], span: Window) -> list[float]:
    """Return those `TARGETS` above every arm's mean at the start that at least one run reaches."""
    start = max(float(outcomes.mean_curve(arm, np.array([span.start]))[0]) for arm in arms)
    runs = [curve for arm in arms for curve in arm]
    reached = np.isfinite(crossings(runs, np.array(TARGETS), span)[0].min(-1))
    return [t for t, some in zip(TARGETS, reached, strict=True) if some and t > start]


def measured_targets(
    arms: Sequence[Sequence[RunCurve]], targets: Sequence[float], span: Window
) -> list[float]:
    """Return the targets that some arm's median run passes after its first evaluation, or never.

    The median time to another target comes from the first line alone, whose true shape is unknown.
    """
    early = np.ones(len(targets), bool)
    for runs in arms:
        first = np.array([run.seconds[run.seconds > 0].min(initial=np.inf) for run in runs])
        early &= (crossings(runs, np.array(targets), span)[0] < first).mean(-1) >= 0.5
    return [target for target, left_out in zip(targets, early, strict=True) if not left_out]


def speedups(
    arm: Sequence[RunCurve],
    baseline: Sequence[RunCurve],
    targets: Sequence[float],
    span: Window,
    draws: tuple[Indices, Indices],
) -> list[Row]:
    """Time one arm against its baseline: to fixed targets and the baseline's peak.

    `draws` has the (D, S) indices of resampled runs of each, the same array where runs are paired.

    Returns:
        kind, target, seconds, reached, runs, baseline_seconds, baseline_reached, baseline_runs,
        ratio, low, high (95 % percentile interval over whole runs), bound, steps_ratio (the ratio
        in training steps). Like the ratio, an end of 0 or inf is not a time but means that half of
        an arm's runs missed. There are no rows where the window has no length.
    """
    if span.end == span.start:
        return []
    levels, arms = np.array(targets, float), (arm, baseline)
    seconds = [crossings(runs, levels, span)[0] for runs in arms]
    medians = [np.median(times[:, drawn], -1) for times, drawn in zip(seconds, draws, strict=True)]
    ratios = zip(targets, _ratio(*medians), strict=True)
    rows = [_row("fixed", target, arms, span, resampled) for target, resampled in ratios]
    return [*rows, _peak(arms, span, draws)]


def _peak(arms: Sides, span: Window, draws: tuple[Indices, Indices]) -> Row:
    """Time both arms to 99 % of the peak of the baseline's mean curve, new in each resample."""
    baseline = arms[1]
    grid = outcomes.knots(baseline, span)
    grid = grid[:: -(-len(grid) // MOST_KNOTS)]
    target = PEAK_SHARE * outcomes.mean_curve(baseline, grid).max()
    weights = (draws[1][..., None] == np.arange(len(baseline))).mean(1)  # (D, S)
    targets = PEAK_SHARE * (weights @ outcomes.on_grid(baseline, grid)).max(1)
    rows = np.arange(len(targets))[:, None]
    medians = [
        np.median(crossings(runs, targets, span)[0][rows, drawn], -1)
        for runs, drawn in zip(arms, draws, strict=True)
    ]
    return _row("peak", float(target), arms, span, _ratio(*medians))


def _row(kind: str, target: float, arms: Sides, span: Window, resampled: Floats) -> Row:
    """Make the row of one target, given its (D,) resampled ratios."""
    times = [crossings(runs, np.array([target]), span) for runs in arms]
    (arm, arm_steps), (baseline, baseline_steps) = ((s[0], steps[0]) for s, steps in times)
    ratio = _ratio(np.median(arm), np.median(baseline))
    bound = _ratio(*(np.median(np.minimum(seconds, span.end)) for seconds in (arm, baseline)))
    low, high = percentile_interval(resampled)
    few = min(len(arm), len(baseline)) < 2
    return {
        "kind": kind, "target": target,
        "seconds": float(np.median(arm)), "reached": int(np.isfinite(arm).sum()), "runs": len(arm),
        "baseline_seconds": float(np.median(baseline)),
        "baseline_reached": int(np.isfinite(baseline).sum()), "baseline_runs": len(baseline),
        "ratio": float(ratio),
        "low": np.nan if few else max(low, 0.0), "high": np.nan if few else high,
        "bound": float(bound) if np.isinf(ratio) or ratio == 0 else np.nan,
        "steps_ratio": float(_ratio(np.median(arm_steps), np.median(baseline_steps))),
    }  # fmt: skip


def _ratio(arm: Floats, baseline: Floats) -> Floats:
    """Divide times of the baseline by times of the arm; NaN for inf / inf and where one is 0."""
    arm, baseline = np.asarray(arm), np.asarray(baseline)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((arm > 0) & (baseline > 0), baseline / arm, np.nan)
