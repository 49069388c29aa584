"""Speed-ups: how many times as fast one arm reaches an accuracy as another, by medians over runs.

ratio = median time of the baseline / median time of the arm: 2 means half the time. A run that
does not reach the target counts as infinitely late and is never dropped (as in AlgoPerf,
arXiv:2306.07179). The ratio is thus inf where half of the baseline's runs miss the target, 0 where
half of the arm's do, and NaN where both do, one starts above it, or a NaN in a run's curve leaves
its time unknown. `bound` then gives what is certain: the ratio with the misses placed at the end of
the window. Times lie on the lines between evaluations. A target that is passed before the first
evaluation after 0 is timed by that line alone; default targets that both arms pass there are left
out.

Shapes: S = runs, K = targets, D = resamples, G = grid points.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pods.analysis.numbers import outcomes
from pods.analysis.numbers.outcomes import RunCurve, Window, crossings
from pods.analysis.numbers.statistics import Indices, percentile_interval
from pods.types import Floats

TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
PEAK_SHARE = 0.99
MOST_KNOTS = 500  # of a mean curve among which its peak is looked for
Row = dict[str, Any]
Sides = tuple[Sequence[RunCurve], Sequence[RunCurve]]
"""The runs of an arm and of its baseline."""


def default_targets(arms: Iterable[Sequence[RunCurve]], span: Window) -> list[float]:
    """Return those `TARGETS` above every arm's mean at the start that at least one run reaches."""
    arms = list(arms)
    begin = np.array([span.start])
    start = max(float(outcomes.mean_curve(arm, begin)[0]) for arm in arms)
    runs = [curve for arm in arms for curve in arm]
    seconds, _ = crossings(runs, np.array(TARGETS), span)

    chosen = []
    for target, by_run in zip(TARGETS, seconds, strict=True):
        if target > start and np.isfinite(by_run).any():
            chosen.append(target)
    return chosen


def measured_targets(
    arms: Sequence[Sequence[RunCurve]], targets: Sequence[float], span: Window
) -> list[float]:
    """Return the targets that some arm's median run passes after its first evaluation, or never.

    The median time to another target comes from the first line alone, whose true shape is unknown.
    """
    early = np.ones(len(targets), bool)
    for runs in arms:
        first = np.array([run.seconds[run.seconds > 0].min(initial=np.inf) for run in runs])
        seconds, _ = crossings(runs, np.array(targets), span)
        early &= (seconds < first).mean(-1) >= 0.5
    return [target for target, is_early in zip(targets, early, strict=True) if not is_early]


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

    levels = np.array(targets, float)
    arm_seconds, _ = crossings(arm, levels, span)
    baseline_seconds, _ = crossings(baseline, levels, span)
    arm_draws, baseline_draws = draws
    arm_medians = np.median(arm_seconds[:, arm_draws], -1)  # (K, D)
    baseline_medians = np.median(baseline_seconds[:, baseline_draws], -1)
    resampled = _ratio(arm_medians, baseline_medians)

    rows = []
    for target, ratios in zip(targets, resampled, strict=True):
        rows.append(_row("fixed", target, (arm, baseline), span, ratios))
    rows.append(_peak((arm, baseline), span, draws))
    return rows


def _peak(arms: Sides, span: Window, draws: tuple[Indices, Indices]) -> Row:
    """Time both arms to 99 % of the peak of the baseline's mean curve, new in each resample."""
    _, baseline = arms
    _, baseline_draws = draws
    grid = outcomes.knots(baseline, span)
    stride = -(-len(grid) // MOST_KNOTS)  # rounded up
    grid = grid[::stride]
    target = PEAK_SHARE * outcomes.mean_curve(baseline, grid).max()

    counts = baseline_draws[..., None] == np.arange(len(baseline))  # (D, S, S)
    weights = counts.mean(1)  # (D, S)
    targets = PEAK_SHARE * (weights @ outcomes.on_grid(baseline, grid)).max(1)  # (D,)
    resample = np.arange(len(targets))[:, None]  # each resample is timed to its own target
    medians = []
    for runs, drawn in zip(arms, draws, strict=True):
        seconds, _ = crossings(runs, targets, span)
        medians.append(np.median(seconds[resample, drawn], -1))
    return _row("peak", float(target), arms, span, _ratio(medians[0], medians[1]))


def _row(kind: str, target: float, arms: Sides, span: Window, resampled: Floats) -> Row:
    """Make the row of one target, given its (D,) resampled ratios."""
    arm, baseline = arms
    level = np.array([target])
    [arm_seconds], [arm_steps] = crossings(arm, level, span)
    [baseline_seconds], [baseline_steps] = crossings(baseline, level, span)

    ratio = float(_ratio(np.median(arm_seconds), np.median(baseline_seconds)))
    steps_ratio = float(_ratio(np.median(arm_steps), np.median(baseline_steps)))
    bound = np.nan
    if np.isinf(ratio) or ratio == 0:
        arm_least = np.median(np.minimum(arm_seconds, span.end))
        baseline_least = np.median(np.minimum(baseline_seconds, span.end))
        bound = float(_ratio(arm_least, baseline_least))

    low = np.nan
    high = np.nan
    if min(len(arm), len(baseline)) >= 2:
        low, high = percentile_interval(resampled)
        low = max(low, 0.0)
    return {
        "kind": kind,
        "target": target,
        "seconds": float(np.median(arm_seconds)),
        "reached": int(np.isfinite(arm_seconds).sum()),
        "runs": len(arm),
        "baseline_seconds": float(np.median(baseline_seconds)),
        "baseline_reached": int(np.isfinite(baseline_seconds).sum()),
        "baseline_runs": len(baseline),
        "ratio": ratio,
        "low": low,
        "high": high,
        "bound": bound,
        "steps_ratio": steps_ratio,
    }


def _ratio(arm: Floats, baseline: Floats) -> Floats:
    """Divide times of the baseline by times of the arm; NaN for inf / inf and where one is 0."""
    arm = np.asarray(arm)
    baseline = np.asarray(baseline)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((arm > 0) & (baseline > 0), baseline / arm, np.nan)
