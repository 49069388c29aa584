"""Curves over training time: each series' mean over runs with its error, on a common grid.

Shapes: S = runs (seeds) of a series, P = evaluations of a run, G = grid points.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.loading.study import Study, passes
from pods.analysis.numbers.outcomes import all_curves, on_grid
from pods.analysis.numbers.statistics import mean_and_stderr
from pods.types import Floats

GRID_POINTS = 61
STEP_METRICS = (
    "reward",
    "zero_variance_fraction",
    "kept_reward_variance",
    "generated_rollouts",
    "rollouts_saved",
)
"""Metrics of training, averaged over the steps that ended since the previous grid point."""
EVALUATED = ("accuracy", "lenient", "format", "both", "length")


def time_grid(study: Study) -> Floats:
    """Return the (G,) points, in the study's x, from 0 to the end of the window.

    It ends with the first complete run, so that every point of a curve averages the same runs.
    """
    ends = study.evaluations.groupby("run")[study.x].max()
    complete = ends[ends.index.isin(study.complete)]
    if len(complete):
        ends = complete
    return np.linspace(0.0, min(ends.min(), study.until), GRID_POINTS)


def curves(study: Study) -> pd.DataFrame:
    """Average each series over its runs on a common grid of training seconds.

    Repeats have been averaged within each run, so the error is over runs alone.

    Returns:
        One row per (metric, series, grid point): metric, series, train_seconds (or the chosen x),
        mean, stderr, runs (their number).
    """
    grid = time_grid(study)
    parts = []
    for curve in itertools.chain(_evaluated(study, grid), _trained(study, grid)):
        mean, stderr = mean_and_stderr(curve.values)
        part = {
            "metric": curve.metric,
            "series": curve.series,
            study.x: grid,
            "mean": mean,
            "stderr": stderr,
            "runs": (~np.isnan(curve.values)).sum(0),
        }
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True)
class _Values:
    """One metric of the runs of a series."""

    metric: str
    series: str
    values: Floats  # (S, G)


def _evaluated(study: Study, grid: Floats) -> Iterator[_Values]:
    """Yield what evaluations measured."""
    rows = study.evaluations
    metrics = [name for name in EVALUATED if name in rows]
    for metric in metrics + passes(rows):
        for series, measured in rows.groupby("series", sort=False)[metric]:
            if measured.notna().any():
                runs = all_curves(study, str(series), metric)
                yield _Values(metric, str(series), on_grid(runs, grid))


def _trained(study: Study, grid: Floats) -> Iterator[_Values]:
    """Yield what was logged of the steps."""
    for metric in STEP_METRICS:
        if metric in study.steps:
            steps = study.steps[["series", "run", study.x, metric]]
            for series, series_steps in steps.groupby("series", sort=False):
                values = _step_means(series_steps, metric, grid, study.x)
                yield _Values(metric, str(series), values)


def _step_means(steps: pd.DataFrame, metric: str, grid: Floats, x: str) -> Floats:
    """Average (S, G) values of a metric over a run's steps since the previous grid point.

    Where no step ended, the value is that of the step in progress; after the last step it is NaN.
    """
    index = np.searchsorted(grid, steps[x].to_numpy())
    means = steps[metric].groupby([steps.run.to_numpy(), index]).mean().unstack()
    return means.reindex(columns=range(len(grid))).bfill(axis=1).to_numpy(float)


def phase_columns(table: pd.DataFrame) -> list[str]:
    """List the columns that hold the seconds of a step's phases."""
    return [str(column) for column in table.filter(regex="^seconds/")]
