"""Outcomes against training time: a run's curve, and the mean of a series with its error.

Shapes: S = runs (seeds) of a series, P = evaluations of a run, G = grid points.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.load import Study, by_run
from pods.analysis.statistics import iqm, mean_and_stderr, t_half_width

GRID_POINTS = 61
OF_STEPS = ("reward", "zero_variance_fraction", "kept_reward_variance", "generated_rollouts",
            "rollouts_saved")  # fmt: skip
"""Of training: means over the steps that ended since the grid point before."""
EVALUATED = ("accuracy", "lenient", "format", "both", "length")
Floats = NDArray[np.float64]


def on_grid(times: Floats, values: Floats, grid: Floats) -> Floats:
    """Interpolate a run's (P,) values linearly at (G,) times; NaN outside what it measured."""
    return np.interp(grid, times, values, left=np.nan, right=np.nan)


def grid_of(study: Study) -> Floats:
    """(G,) training seconds from 0 to where the first complete run of the study ends.

    So every point of a curve has the same runs in it, but for those with something missing.
    """
    last = study.evaluations.groupby("run").train_seconds.max()
    whole = last[last.index.isin(study.complete)]
    return np.linspace(0.0, (whole if len(whole) else last).min(), GRID_POINTS)


def curves(study: Study) -> pd.DataFrame:
    """Average each series over its runs on a common grid of training seconds.

    The repeats have been averaged within each run: the error is over runs alone. `OF_STEPS`
    are of training, means over the steps that ended since the grid point before.

    Returns:
        metric, series, train_seconds, mean, stderr, t_low and t_high (95 % t interval), iqm
        (interquartile mean), n; a row a (metric, series, grid point).
    """
    grid = grid_of(study)
    parts = [_averaged(grid, *part) for part in _values(study, grid)]
    return pd.concat(parts, ignore_index=True)


def _values(study: Study, grid: Floats) -> Iterator[tuple[str, str, Floats]]:
    """Metric, series and the (S, G) values of its runs."""
    ordered = study.evaluations.sort_values("train_seconds", kind="stable")
    names = study.evaluations.series.unique()
    evaluations = {series: ordered[ordered.series == series] for series in names}
    places = {series: by_run(rows) for series, rows in evaluations.items()}
    for metric in [metric for metric in EVALUATED if metric in ordered]:
        for series, rows in evaluations.items():
            if rows[metric].notna().any():
                times, values = rows.train_seconds.to_numpy(), rows[metric].to_numpy()
                runs = [on_grid(times[run], values[run], grid) for run in places[series].values()]
                yield metric, series, np.stack(runs)
    metrics = [metric for metric in OF_STEPS if metric in study.steps]
    steps = {str(series): _windows(rows, metrics, grid)
             for series, rows in study.steps.groupby("series", sort=False)}  # fmt: skip
    for metric in metrics:
        for series, windows in steps.items():
            yield metric, series, windows[metric]


def _windows(steps: pd.DataFrame, metrics: Sequence[str], grid: Floats) -> dict[str, Floats]:
    """(S, G) means of each metric over those of a run's steps that ended since the point before.

    Where none ended, that of the step in progress; NaN after the last one.
    """
    place = np.searchsorted(grid, steps.train_seconds.to_numpy())
    means = steps[list(metrics)].groupby([steps.run.to_numpy(), place]).mean()
    return {
        metric: means[metric].unstack().reindex(columns=range(len(grid))).bfill(axis=1)
        .to_numpy(float) for metric in metrics
    }  # fmt: skip


def _averaged(grid: Floats, metric: str, series: str, values: Floats) -> pd.DataFrame:
    mean, stderr = mean_and_stderr(values)
    count = (~np.isnan(values)).sum(0)
    half = t_half_width(stderr, count)
    return pd.DataFrame({
        "metric": metric,
        "series": series,
        "train_seconds": grid,
        "mean": mean,
        "stderr": stderr,
        "t_low": mean - half,
        "t_high": mean + half,
        "iqm": [iqm(column[~np.isnan(column)]) if some else np.nan
                for column, some in zip(values.T, count, strict=True)],
        "n": count,
    })  # fmt: skip


def counts(curve: pd.DataFrame) -> Iterator[str]:
    """How many runs each series' accuracy has at its points, where that is not the same at all."""
    for series, points in curve[curve.metric == "accuracy"].groupby("series", sort=False):
        ends = points[points.n != points.n.shift(-1)]
        steps = [f"{row.n} until {row.train_seconds:.4g} s" for row in ends.itertuples()]
        yield f"n of {series}: {', '.join(steps)}"


def phase_columns(table: pd.DataFrame) -> list[str]:
    """The columns that hold the seconds of a step's phases."""
    return [str(column) for column in table.columns if str(column).startswith("seconds/")]
