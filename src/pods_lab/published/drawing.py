"""Draw a figure of the PODS paper: accuracy against time, and seconds per step."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis.figures import style
from pods.analysis.figures.specs import FigureSpec
from pods.analysis.numbers.statistics import mean_and_stderr
from pods.analysis.numbers.tables import run_table
from pods_lab.published.fetch import COMMIT
from pods_lab.published.paper_figures import PaperFigure
from pods_lab.published.reproduce import Reproduction, nearest

SEM_WIDTH = 1.96  # half width of the authors' bands, in standard errors


def drawing(figure: PaperFigure, reproductions: Mapping[str, Reproduction]) -> FigureSpec:
    """Make the paper's figure from each set of runs: accuracy against time, seconds per step.

    The sets are given by what their logs are called; a set has two panels.
    """
    points = []
    runs = []
    for source, made in reproductions.items():
        points.append(_points(made).assign(logs=source))
        runs.append(run_table(made.study).assign(logs=source))
    table = pd.concat(points, ignore_index=True)

    def draw() -> Figure:
        sets = len(reproductions)
        axes_figure, panels = style.panels(2 * sets, 8.5 * sets, 3.4, widths=[2.4, 1] * sets)
        for index, (source, made) in enumerate(reproductions.items()):
            _accuracy(panels[2 * index], made, table[table.logs == source], source)
            _step_times(panels[2 * index + 1], made)
        axes_figure.suptitle(figure.title)
        return axes_figure

    caption = (
        f"{figure.title}: the paper's figure ({figure.source} at {COMMIT[:7]}) from the authors' "
        "logs. Mean over runs ± 1.96 standard errors, at the nearest evaluation."
    )
    return FigureSpec(figure.name, caption, draw, table, pd.concat(runs))


def _points(made: Reproduction) -> pd.DataFrame:
    """Make one row per arm and time of the grid: arm, series, seconds, mean, stderr, runs."""
    tables = []
    for label, runs in made.curves.items():
        mean, stderr = mean_and_stderr(nearest(runs, made.grid))
        columns = {
            "arm": label,
            "series": made.series[label],
            "seconds": made.grid,
            "mean": mean,
            "stderr": stderr,
            "runs": len(runs),
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _accuracy(axes: Axes, made: Reproduction, table: pd.DataFrame, source: str) -> None:
    """Draw the curves; as in the paper, the base model at 0 s does not set the axis."""
    unit, _ = style.x_unit(made.study, made.grid[-1])
    for index, (label, points) in enumerate(table.groupby("arm", sort=False)):
        times = points.seconds.to_numpy() / unit
        mean = 100 * points["mean"].to_numpy()
        band = 100 * SEM_WIDTH * points.stderr.to_numpy()
        starts = [run.accuracy[0] for run in made.curves[str(label)] if run.seconds[0] == 0]
        if starts:
            times = np.insert(times, 0, 0.0)
            mean = np.insert(mean, 0, 100 * np.mean(starts))
            band = np.insert(band, 0, 0.0)
        look = style.marker_and_colour(index)
        axes.plot(times, mean, **look, markersize=4, label=f"{label} ({points.runs.iloc[0]} runs)")
        axes.fill_between(times, mean - band, mean + band, color=look["color"], alpha=0.25)

    runs = np.concatenate([nearest(curves, made.grid) for curves in made.curves.values()])
    margin = 0.01 * (runs.max() - runs.min())
    axes.set_ylim(100 * (runs.min() - margin), 100 * (runs.max() + margin))
    style.x_axis(axes, made.study, made.grid[-1])
    axes.set_ylabel(f"{style.LABELS[made.study.metric]} (%)")
    axes.set_title(source, fontsize=9)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)  # off the curves
    axes.grid(visible=True, alpha=0.25)


def _step_times(axes: Axes, made: Reproduction) -> None:
    """Draw the mean seconds of a step of each arm."""
    seconds = run_table(made.study).groupby("series").seconds_per_step.mean()
    for index, (label, name) in enumerate(made.series.items()):
        axes.bar(label, seconds[name], color=style.marker_and_colour(index)["color"])
    axes.tick_params(axis="x", labelsize=7 if len(made.series) < 5 else 5.5)
    axes.set_ylabel("seconds per step")
    axes.grid(axis="y", alpha=0.25)
