"""Draw on axes: metrics over time, differences to a baseline, step costs, finished runs.

Shapes: K = markers of a curve.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from pods.analysis.figures import style
from pods.analysis.loading.study import Study
from pods.analysis.numbers.curves import phase_columns
from pods.analysis.numbers.outcomes import RunCurve, all_curves, run_curves
from pods.types import Floats

MOST_MARKERS = 12  # per curve
LEAST = 3  # values of n or m that a scaling figure needs
SIZES = {"n": "rollouts generated per prompt, n", "m": "rollouts trained on, m"}
LEAST_SHARE = 0.01  # of the time of all steps: a shorter phase could not be seen
JITTER = 0.06  # of the distance of two values, so that no line hides another one's error
FLAT_NAMES = 30  # characters of an axis' names that fit next to each other


@dataclass(frozen=True)
class _Curve:
    """A line with its band, in the units of the axes."""

    series: str
    x: "pd.Series[float]"
    y: "pd.Series[float]"
    low: "pd.Series[float]"
    high: "pd.Series[float]"
    markers: Floats
    """(K,) places on the x axis."""


def against_time(axes: Axes, curve: pd.DataFrame, study: Study, scale: float = 1.0) -> str:
    """Draw one metric of each series over time: mean, standard error, and a line per run.

    Values are multiplied by `scale`. Imported logs are dashed. Returns the title of a legend.
    """
    metric = str(curve.metric.iloc[0])
    line_style = "-" if study.seeded else "--"
    unit, _ = style.x_unit(study, curve[study.x].max())
    title, labels = style.legend_texts(study, curve, style.BAND)

    for series in _from_the_top(curve, "mean"):
        look = style.look_of(study, series) | {"linestyle": line_style}
        if metric in study.evaluations:
            _thin_lines(axes, all_curves(study, series, metric), unit, scale, look)
        points = _with_corners(curve[curve.series == series], study, series, metric)
        mean = scale * points["mean"]
        stderr = scale * points.stderr
        line = _Curve(
            series=series,
            x=points[study.x] / unit,
            y=mean,
            low=mean - stderr,
            high=mean + stderr,
            markers=marker_positions(study, metric, series) / unit,
        )
        _draw_curve(axes, line, look, labels[series])
    return title


def _with_corners(points: pd.DataFrame, study: Study, series: str, metric: str) -> pd.DataFrame:
    """Add the evaluations of a single run to its line, since a grid cuts the corners at them."""
    runs = all_curves(study, series, metric) if metric in study.evaluations else []
    if len(runs) != 1:
        return points
    [run] = runs
    x = points[study.x].to_numpy(float)
    inside = (run.seconds >= x[0]) & (run.seconds <= x[-1])
    places = np.union1d(x, run.seconds[inside])
    mean = np.interp(places, run.seconds, run.accuracy, right=np.nan)
    return pd.DataFrame({study.x: places, "mean": mean, "stderr": np.nan})


def differences(axes: Axes, table: pd.DataFrame, study: Study, scale: float) -> str:
    """Draw the difference of each arm to the baseline, at least one, with its 95 % t interval.

    Values are multiplied by `scale`. Returns the title of a legend.
    """
    unit, _ = style.x_unit(study, table[study.x].max())
    title, labels = style.legend_texts(study, table, "mean, 95 % t interval")
    axes.axhline(0, color="#000000", linewidth=0.8)

    for series in _from_the_top(table, "estimate"):
        points = table[table.series == series]
        line = _Curve(
            series=series,
            x=points[study.x] / unit,
            y=scale * points.estimate,
            low=scale * points.low,
            high=scale * points.high,
            markers=marker_positions(study, "accuracy", series) / unit,
        )
        _draw_curve(axes, line, style.look_of(study, series), labels[series])
    return title


def _from_the_top(table: pd.DataFrame, column: str) -> list[str]:
    """List the series in the order in which their lines end, so that a legend has it, too."""
    ends = table.groupby("series", sort=False)[column].last()
    return list(ends.sort_values(ascending=False, kind="stable").index)


def marker_positions(study: Study, metric: str, series: str) -> Floats:
    """Return the (K,) markers of a curve: the mean over runs of the k-th evaluation's x.

    That is for each k that all complete runs have, or every second or third of them if there
    are many, at most `MOST_MARKERS`. Metrics of steps have no markers.
    """
    if metric not in study.evaluations:
        return np.empty(0)
    runs = run_curves(study, series) or all_curves(study, series)
    count = min(len(run.seconds) for run in runs)
    mean: Floats = np.mean([run.seconds[:count] for run in runs], 0)
    stride = math.ceil(count / MOST_MARKERS)
    return mean[::stride]


def _thin_lines(
    axes: Axes, runs: Sequence[RunCurve], unit: float, scale: float, look: dict[str, Any]
) -> None:
    """Draw each of several runs."""
    if len(runs) < 2:
        return
    lines = [np.stack([run.seconds / unit, scale * run.accuracy], -1) for run in runs]
    thin = LineCollection(
        lines, alpha=0.3, linewidth=0.6, linestyle=look["linestyle"], color=look["color"]
    )
    axes.add_collection(thin)


def _draw_curve(axes: Axes, line: _Curve, look: dict[str, Any], label: str) -> None:
    """Draw a line in its band, with markers at some x; all have one entry in the legend."""
    axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(line.x, line.y, **(look | {"marker": ""}))

    heights = np.interp(line.markers, line.x, line.y, left=np.nan, right=np.nan)
    inside = np.isfinite(heights)
    if inside.any():
        dots = look | {"linestyle": "", "clip_on": False, "zorder": 3}  # whole at an axis' ends
        axes.plot(line.markers[inside], heights[inside], **dots)
    axes.plot([], [], **look, label=label)


def step_cost(axes: Axes, summary: pd.DataFrame, study: Study, baseline: str | None) -> None:
    """Draw what a step of each series takes on average, stacked by phase, and say how much it is.

    With a baseline, also how many times its step a step of another series costs.
    """
    names = summary.series.map(style.legend_name)
    seconds = summary[study.per_step]
    end = pd.Series(0.0, index=summary.index)
    for column in phase_columns(summary):
        widths = summary[column]
        if widths.sum() > LEAST_SHARE * seconds.sum():
            phase = column.removeprefix("seconds/")
            axes.barh(names, widths, left=end, color=style.PHASE_COLOURS[phase], label=phase)
            end = end + widths.fillna(0)
    if not end.any():  # imported logs have no phases
        end = seconds
        axes.barh(names, end, color=style.PHASE_COLOURS["all phases"], label="all phases")

    label = style.per_step_label(study)
    decimals = 2
    if seconds.max() > 0:
        decimals = max(0, 2 - math.floor(math.log10(seconds.max())))
    number = f"{{:.{decimals}f}}"
    shown = f" ${number}" if study.x == "dollars" else f" {number} s"
    texts = seconds.map(shown.format)
    if len(summary) > 1 and baseline in set(summary.series):
        label += f"; ×: relative to {style.legend_name(str(baseline))}"
        is_other = summary.series != baseline
        times = seconds / seconds[~is_other].iloc[0]
        texts[is_other] += times[is_other].map("\n {:.2f}×".format)
    for x, name, text in zip(end, names, texts, strict=True):
        axes.text(x, name, text, va="center", fontsize="small")

    axes.invert_yaxis()
    axes.margins(x=0.2)  # for the text
    axes.set_xlabel(label)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5)
    axes.grid(visible=False, axis="y")


def scaling_family(runs: pd.DataFrame, by: str, fixed: str) -> pd.DataFrame | None:
    """Find the runs that differ only in n and m and the seed, with the longest line of values.

    Each value of `fixed` that has two values of `by` or more makes a line. Where n = m nothing is
    left out, so such a run belongs to every rule.
    """
    best = None
    best_size = (0, 0)
    for _, rows in runs.groupby("settings"):
        for rule in rows.rule[rows.rule != "all"].unique():
            family = rows[rows.rule.isin([rule, "all"])]
            length = family.groupby(fixed)[by].transform("nunique")
            size = (length.max(), len(family))
            if size[0] >= LEAST and size > best_size:
                best = family[length > 1]
                best_size = size
    return best


def outcome_by(
    axes: Axes, study: Study, table: pd.DataFrame, by: str, outcome: str, line: str | None
) -> None:
    """Draw one outcome of finished runs, a row each, against n, m or the rule.

    A run is a dot, and each value of the column `line` makes a line of means ± stderr.
    """
    values = sorted(table[by].unique())
    lines = {"": table}
    if line is not None:
        lines = {f"{line} = {value}, ": rows for value, rows in table.groupby(line)}

    middle = (len(lines) - 1) / 2
    for index, (name, runs) in enumerate(lines.items()):
        shift = JITTER * (index - middle)
        look = style.marker_and_colour(index)
        places = runs[by].map(values.index) + shift
        axes.scatter(places, runs[outcome], s=12, alpha=0.35, color=look["color"], linewidths=0)

        groups = runs.groupby(by)[outcome]
        counts = groups.count()
        axes.errorbar(
            counts.index.map(values.index) + shift,
            groups.mean(),
            yerr=groups.sem().fillna(0),
            **look,
            linestyle="-" if by in SIZES else "none",
            capsize=3,
            label=f"{name}{style.seeds(study, counts)}",
        )

    names = [str(value).rpartition(":")[2] for value in values]  # of a rule, the function
    if len("".join(names)) < FLAT_NAMES:
        axes.set_xticks(range(len(values)), names)
    else:
        axes.set_xticks(range(len(values)), names, rotation=30, ha="right")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(SIZES.get(by, "down-sampling rule"))
