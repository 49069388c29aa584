"""Draw curves on axes: a study's accuracy over time, and differences to a baseline.

Shapes: K = markers of a curve, P = evaluations of a run.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from pods.analysis.look import Band
from pods.analysis.plots import count_range, legend_name, style
from pods.analysis.statistics import Floats
from pods.analysis.study import Study, indices_by_run
from pods.analysis.view import SHARES

MOST_MARKERS = 12  # per curve


def against_time(
    axes: Axes,
    curve: pd.DataFrame,
    study: Study,
    unit: float,
    first: int = 0,
    band: Band = "se",
) -> None:
    """Draw one metric of each series over time: mean, error, and a line per run.

    Args:
        axes: what to draw on.
        curve: rows of one metric.
        study: the study of the curve; imported logs are dashed.
        unit: seconds of the time axis' unit; 1 for an axis of something else.
        first: index in the legend of the first series.
        band: what is shaded around the mean.
    """
    metric = str(curve.metric.iloc[0])
    dash = "-" if study.seeded else "--"
    for index, (series, points) in enumerate(curve.groupby("series", sort=False), first):
        look, times = style(index), points[study.x] / unit
        lines = _run_lines(study, metric, str(series), unit)
        thin = {"alpha": 0.18, "linewidth": 0.7, "linestyle": dash, "color": look["color"]}
        axes.add_collection(LineCollection(lines, **thin))
        if band != "none":
            low, high = points["mean"] - points.stderr, points["mean"] + points.stderr
            low, high = (low, high) if band == "se" else (points.t_low, points.t_high)
            axes.fill_between(times, low, high, color=look["color"], alpha=0.25, linewidth=0)
        label = f"{legend_name(str(series))}  (n={count_range(points.n, ' to ')})"
        marks = measured(study, metric, str(series)) / unit
        _marked_line(axes, times, points["mean"], marks, {**look, "linestyle": dash}, label)
    axes.grid(visible=True, alpha=0.25)


def _marked_line(
    axes: Axes, x: Any, y: Any, marks: Floats, look: dict[str, Any], label: str | None = None
) -> None:
    """Draw a line with markers at some x; both have one entry in the legend."""
    axes.plot(x, y, **{**look, "marker": ""})
    heights = np.interp(marks, x, y, left=np.nan, right=np.nan)
    axes.plot(marks, heights, **{**look, "linestyle": ""}, markersize=4)
    axes.plot([], [], **look, markersize=4, label=label)


def measured(study: Study, metric: str, series: str) -> Floats:
    """Return where a curve gets its markers: where its runs were evaluated, in the study's x.

    That is the mean over runs of the k-th evaluation's x, for each k that all complete runs have,
    or every second or third of them where there are many. Metrics of steps have no markers.

    Returns:
        (K,) positions, K at most `MOST_MARKERS`.
    """
    rows = study.evaluations[study.evaluations.series == series]
    if metric not in rows:
        return np.empty(0)
    complete = rows[rows.run.isin(study.complete)]
    rows = complete if len(complete) else rows
    runs = [np.sort(at.to_numpy(float)) for _, at in rows.groupby("run")[study.x]]
    count = min(map(len, runs))
    mean: Floats = np.mean([at[:count] for at in runs], 0)
    return mean[:: -(-count // MOST_MARKERS)]


def _run_lines(study: Study, metric: str, series: str, unit: float) -> list[Any]:
    """Return (P, 2) times and values of each run; nothing for metrics of steps."""
    if metric not in study.evaluations:
        return []
    rows = study.evaluations[study.evaluations.series == series]
    rows = rows.assign(time=rows[study.x] / unit).sort_values("time", kind="stable")
    points = rows[["time", metric]].to_numpy()
    return [points[run] for run in indices_by_run(rows).values()]


def fallen(curve: pd.DataFrame) -> str | None:
    """Name the one arm that may not set the lower end of the axis for all; None: there is none.

    It is the arm without which the mean curves of the others, at least two, span less than half
    of what all span, if that is because it falls below them. An arm above the others is what a
    reader looks for and never cut off; two fallen arms are no exception.

    Args:
        curve: rows of one metric.

    >>> means = {"pods": (0.6, 0.8), "grpo": (0.6, 0.7), "max_reward": (0.6, 0.1)}
    >>> rows = [(arm, mean) for arm, both in means.items() for mean in both]
    >>> fallen(pd.DataFrame(rows, columns=["series", "mean"]))  # 0.2 < half of 0.7
    'max_reward'
    """
    ends = curve.groupby("series", sort=False)["mean"].agg(["min", "max"]).dropna()
    if len(ends) < 3:
        return None
    lowest = str(ends["min"].idxmin())
    others = ends.drop(lowest)
    top, bottom = others["max"].max(), others["min"].min()
    whole = max(top, ends["max"].max()) - ends["min"].min()
    return lowest if 0 < top - bottom < 0.5 * whole else None


def cut_below(axes: Axes, low: float, high: float) -> None:
    """End an axis a margin below and above the values of the arms that set it."""
    margin = matplotlib.rcParams["axes.ymargin"] * (high - low)
    axes.set_ylim(low - margin, high + margin)


def cut_fallen(axes: Axes, curve: pd.DataFrame, study: Study) -> None:
    """Let the other arms set the axis of accuracy, and name the arm that leaves it; see `fallen`.

    The means with their standard errors and the single runs of all others stay in view.
    """
    name, metric = fallen(curve), str(curve.metric.iloc[0])
    if name is None:
        return
    others = curve[curve.series != name]
    lines = [_run_lines(study, metric, str(series), 1.0) for series in others.series.unique()]
    single = [line[:, 1] for of_series in lines for line in of_series]
    error = others.stderr.fillna(0)
    shown = pd.concat([others["mean"] - error, others["mean"] + error, *map(pd.Series, single)])
    cut_below(axes, shown.min(), shown.max())
    least = curve["mean"][curve.series == name].min()
    axes.text(
        *(0.01, 0.98),
        f"{name} falls to {least:.3g}, below this axis",
        color=style(list(curve.series.unique()).index(name))["color"],
        transform=axes.transAxes,
        va="top",
        fontsize=8,
    )


def differences(
    axes: Axes,
    table: pd.DataFrame,
    study: Study,
    unit: float,
    order: Sequence[str],
    cut: str | None,
) -> None:
    """Draw the difference of each arm to the baseline with its 95 % t interval.

    Args:
        axes: what to draw on.
        table: see `pods.analysis.differences.differences`; at least one row.
        study: the study of the table; differences of a share are shown in points.
        unit: as in `against_time`.
        order: the series in the order of the legend, which gives the colours.
        cut: the arm that does not set the axis; see `fallen`.
    """
    shares = study.metric in SHARES
    factor = 100 if shares else 1
    axes.axhline(0, color="#000000", linewidth=0.7)
    for series, points in table.groupby("series", sort=False):
        look, times = style(list(order).index(str(series))), points[study.x] / unit
        low, high = factor * points.low, factor * points.high
        axes.fill_between(times, low, high, color=look["color"], alpha=0.2, linewidth=0)
        marks = measured(study, "accuracy", str(series)) / unit
        name = legend_name(str(series))
        _marked_line(axes, times, factor * points.estimate, marks, look, name)
    shown = factor * table.loc[table.series != cut, ["estimate", "low", "high"]]
    if 0 < len(shown) < len(table):
        cut_below(axes, min(0.0, shown.min().min()), max(0.0, shown.max().max()))
    axes.set_ylabel(
        f"{'points above' if shares else 'above'} {legend_name(table.baseline.iloc[0])}\n"
        "(95 % t interval)"
    )
    axes.grid(visible=True, alpha=0.25)
