"""Accuracy against training time: a run's curve, the mean of a series, its standard error.

Shapes: S = runs (seeds) of a series, P = evaluations of a run, G = grid points.
"""

import itertools

import numpy as np
import pandas as pd
from numpy.typing import NDArray

GRID_POINTS = 61
OUTCOMES = ("accuracy", "mean_accuracy")  # of a run: at the common end, and until then
Floats = NDArray[np.float64]


def mean_and_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Mean over runs and its standard error, sample std / sqrt(S).

    Args:
        values: (S, G); NaN where a run has no value.

    Returns:
        (G,) means and (G,) standard errors, NaN where fewer than 2 runs have a value.

    >>> mean, stderr = mean_and_stderr(np.array([[1.0], [3.0]]))
    >>> float(mean[0]), float(stderr[0])
    (2.0, 1.0)
    """
    count = (~np.isnan(values)).sum(0)
    safe = np.maximum(count, 1)
    mean = np.where(count > 0, np.nansum(values, 0) / safe, np.nan)
    squares = np.nansum((values - mean) ** 2, 0)
    stderr = np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / safe), np.nan)
    return mean, stderr


def on_grid(times: Floats, values: Floats, grid: Floats) -> Floats:
    """Interpolate a run's (P,) values linearly at (G,) times; NaN outside what it measured."""
    return np.interp(grid, times, values, left=np.nan, right=np.nan)


def curves(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Average each series over its runs on a common grid of training seconds.

    The repeats have been averaged within each run: the error is over runs alone. The grid ends
    where the first run of the study ends, so every point of a curve has the same runs in it.

    Returns:
        series, train_seconds, mean, stderr, n; a row a (series, grid point).
    """
    end = evaluations.groupby(["series", "run"]).train_seconds.max().min()
    grid = np.linspace(0.0, end, GRID_POINTS)
    parts = []
    for series, of_series in evaluations.groupby("series", sort=False):
        runs = [run.sort_values("train_seconds") for _, run in of_series.groupby("run")]
        values = np.stack(
            [on_grid(run.train_seconds.to_numpy(), run.accuracy.to_numpy(), grid) for run in runs]
        )
        mean, stderr = mean_and_stderr(values)
        parts.append(
            pd.DataFrame(
                {
                    "series": series,
                    "train_seconds": grid,
                    "mean": mean,
                    "stderr": stderr,
                    "n": (~np.isnan(values)).sum(0),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def summary(evaluations: pd.DataFrame, steps: pd.DataFrame, curve: pd.DataFrame) -> pd.DataFrame:
    """One row a series: accuracy at the common end, its mean until then, seconds a step by phase.

    The mean is the area under the run's curve divided by its length (trapezoid rule on the
    measured points).
    """
    results, phases = _results(evaluations, curve), phase_columns(steps)
    rows = []
    for series, runs in results.groupby("series", sort=False):
        means, stderrs = mean_and_stderr(runs[list(OUTCOMES)].to_numpy())
        row: dict[str, object] = {
            "series": series,
            "n": len(runs),
            "seconds": float(curve.train_seconds.max()),
        }
        for name, mean, stderr in zip(OUTCOMES, means, stderrs, strict=True):
            row |= {name: mean, f"{name}_stderr": stderr}
        of_steps = steps[steps.series == series]
        row |= {
            "steps": of_steps.groupby("seed").step.max().mean(),
            "seconds_per_step": of_steps[phases].sum(axis=1).mean(),
            **{phase: of_steps[phase].mean() for phase in phases},
        }
        rows.append(row)
    return pd.DataFrame(rows)


def paired(evaluations: pd.DataFrame, curve: pd.DataFrame) -> pd.DataFrame:
    """Differences between every two series over the seeds that they share.

    Returns:
        series, minus, n, and for accuracy at the common end and its mean until then: the mean
        difference, its standard error over seeds, and in how many seeds the first is higher.
    """
    results = _results(evaluations, curve)
    by_seed = {
        series: runs.set_index("seed")[list(OUTCOMES)]
        for series, runs in results.groupby("series", sort=False)
    }
    rows = []
    for one, other in itertools.combinations(by_seed, 2):
        pairs = (by_seed[one] - by_seed[other]).dropna().to_numpy()  # shared seeds alone
        if len(pairs):
            row: dict[str, object] = {"series": one, "minus": other, "n": len(pairs)}
            means, stderrs = mean_and_stderr(pairs)
            for i, name in enumerate(OUTCOMES):
                higher = int((pairs[:, i] > 0).sum())
                row |= {name: means[i], f"{name}_stderr": stderrs[i], f"{name}_higher": higher}
            rows.append(row)
    return pd.DataFrame(rows)


def _results(evaluations: pd.DataFrame, curve: pd.DataFrame) -> pd.DataFrame:
    """One row a run: series, seed and the outcomes at the end of the curves."""
    end = float(curve.train_seconds.max())
    runs = evaluations.groupby(["series", "run"], sort=False)
    rows = [(series, run.seed.iloc[0], *_end_and_mean(run, end)) for (series, _), run in runs]
    return pd.DataFrame(rows, columns=["series", "seed", *OUTCOMES])


def _end_and_mean(run: pd.DataFrame, end: float) -> tuple[float, float]:
    """A run's accuracy at `end` seconds, and its mean from 0 to there."""
    points = run.sort_values("train_seconds")
    times, values = points.train_seconds.to_numpy(), points.accuracy.to_numpy()
    last = float(np.interp(end, times, values))
    if end == 0:
        return last, last
    grid = np.union1d(times[times < end], [end])
    return last, float(np.trapezoid(np.interp(grid, times, values), grid) / end)


def phase_columns(table: pd.DataFrame) -> list[str]:
    """The columns that hold the seconds of a step's phases."""
    return [str(column) for column in table.columns if str(column).startswith("seconds/")]
