"""Differences of arms to the baseline along the curves, where the eye cannot tell them apart."""

import numpy as np
import pandas as pd

from pods.analysis.comparison.contrasts import contrast_of, default_baseline
from pods.analysis.curves import on_grid, time_grid
from pods.analysis.outcomes import RunCurve, run_curves
from pods.analysis.statistics import Floats, t_test
from pods.analysis.study import Study


def differences(study: Study) -> pd.DataFrame:
    """Compare each arm with the baseline at each grid point, over their complete runs.

    Runs are paired over shared seeds where seeds decide prompts and draws, else the interval is
    that of Welch's test, as in `compare`. It holds for one point and is not adjusted for the many.

    Returns:
        One row per (arm, grid point), for arms that have two runs as the baseline has: series,
        baseline, design, n, baseline_n, train_seconds (or the chosen x), estimate (arm - baseline,
        a fraction), low and high (95 % t interval; NaN without spread). No row without a baseline.
    """
    baseline, grid = default_baseline(study), time_grid(study)
    theirs = [] if baseline is None else run_curves(study, baseline)
    rows = []
    for series in study.runs.series.unique():
        ours = run_curves(study, series)
        measured = all(np.isfinite(run.accuracy).any() for run in (*ours, *theirs))
        if series != baseline and min(len(ours), len(theirs)) > 1 and measured:
            contrast = contrast_of(ours, theirs, study.seeded)
            design = "paired" if contrast.paired else "unpaired"
            about = (series, baseline, design, len(contrast.ours), len(contrast.theirs))
            one, other = _values(contrast.ours, grid), _values(contrast.theirs, grid)
            for at, a, b in zip(grid, one.T, other.T, strict=True):
                test = t_test(a - b) if contrast.paired else t_test(a, b)
                rows.append((*about, at, test.estimate, test.low, test.high))
    names = ["series", "baseline", "design", "n", "baseline_n", study.x]
    return pd.DataFrame(rows, columns=[*names, "estimate", "low", "high"])


def _values(runs: list[RunCurve], grid: Floats) -> Floats:
    """Return (S, G) accuracies; NaN outside of a run's record."""
    return np.stack([on_grid(run.seconds, run.accuracy, grid) for run in runs])
