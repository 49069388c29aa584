"""Draw on axes: metrics over time, differences to a baseline, step costs, finished runs.

Shapes: K = markers of a curve.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from pods.analysis.figures import style
from pods.analysis.loading.study import Study
from pods.analysis.numbers.curves import phase_columns
from pods.analysis.numbers.outcomes import all_curves, run_curves
from pods.analysis.numbers.statistics import Floats

MOST_MARKERS = 12  # per curve
LEAST = 3  # values of n or m that a scaling figure needs
SIZES = {"n": "rollouts generated per prompt, n", "m": "rollouts trained on, m"}


def against_time(axes: Axes, curve: pd.DataFrame, study: Study, scale: float = 1.0) -> str:
    """Draw one metric of each series over time: mean, standard error, and a line per run.

    Values are multiplied by `scale`. Imported logs are dashed. Returns the title of a legend.
    """
    metric = str(curve.metric.iloc[0])
    dash = "-" if study.seeded else "--"
    unit, _ = style.x_unit(study, curve[study.x].max())
    title, labels = style.legend_texts(study, curve, style.BAND)

    ends = curve.groupby("series", sort=False)["mean"].last()
    for series in ends.sort_values(ascending=False, kind="stable").index:  # as lines end
        points = curve[curve.series == series]
        look = style.look_of(study, str(series)) | {"linestyle": dash}
        runs = all_curves(study, str(series), metric) if metric in study.evaluations else []
        if len(runs) > 1:
            lines = [np.stack([run.seconds / unit, scale * run.accuracy], -1) for run in runs]
            thin = {"alpha": 0.3, "linewidth": 0.6, "linestyle": dash, "color": look["color"]}
            axes.add_collection(LineCollection(lines, **thin))

        mean, stderr = scale * points["mean"], scale * points.stderr
        marks = marker_positions(study, metric, str(series)) / unit
        band = (mean - stderr, mean + stderr)
        _banded_line(axes, points[study.x] / unit, mean, band, marks, look, labels[str(series)])
    return title


def differences(axes: Axes, table: pd.DataFrame, study: Study, scale: float) -> str:
    """Draw the difference of each arm to the baseline, at least one, with its 95 % t interval.

    Values are multiplied by `scale`. Returns the title of a legend.
    """
    unit, _ = style.x_unit(study, table[study.x].max())
    title, labels = style.legend_texts(study, table, "mean, 95 % t interval")
    axes.axhline(0, color="#000000", linewidth=0.8)

    ends = table.groupby("series", sort=False).estimate.last()
    for series in ends.sort_values(ascending=False, kind="stable").index:
        points = table[table.series == series]
        look = style.look_of(study, str(series))
        marks = marker_positions(study, "accuracy", str(series)) / unit
        band = (scale * points.low, scale * points.high)
        times, estimate = points[study.x] / unit, scale * points.estimate
        _banded_line(axes, times, estimate, band, marks, look, labels[str(series)])
    return title


def marker_positions(study: Study, metric: str, series: str) -> Floats:
    """Return the (K,) markers of a curve: the mean over runs of the k-th evaluation's x.

    That is for each k that all complete runs have, or every second or third of them where there
    are many, at most `MOST_MARKERS`. Metrics of steps have no markers.
    """
    if metric not in study.evaluations:
        return np.empty(0)
    runs = run_curves(study, series) or all_curves(study, series)
    count = min(len(run.seconds) for run in runs)
    mean: Floats = np.mean([run.seconds[:count] for run in runs], 0)
    return mean[:: -(-count // MOST_MARKERS)]


def _banded_line(
    axes: Axes, x: Any, y: Any, band: Any, marks: Floats, look: dict[str, Any], label: str
) -> None:
    """Draw a line in its band, with markers at some x; all have one entry in the legend."""
    axes.fill_between(x, *band, color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(x, y, **{**look, "marker": ""})
    heights = np.interp(marks, x, y, left=np.nan, right=np.nan)
    inside = np.isfinite(heights)
    if inside.any():
        dots = look | {"linestyle": "", "clip_on": False, "zorder": 3}  # whole at an axis' ends
        axes.plot(marks[inside], heights[inside], **dots)
    axes.plot([], [], **look, label=label)


def step_cost(axes: Axes, summary: pd.DataFrame, baseline: str | None) -> None:
    """Draw the mean seconds per step of each series, stacked by phase, and say how many they are.

    With a baseline, also how many times its step a step of another series costs.
    """
    names, left = summary.series.map(style.legend_name), pd.Series(0.0, index=summary.index)
    for column in phase_columns(summary):
        phase, widths = column.removeprefix("seconds/"), summary[column]
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(names, widths, left=left, color=style.PHASE_COLOURS[phase], label=phase)
            left = left + widths.fillna(0)
    if not left.any():  # imported logs have no phases
        left = summary.seconds_per_step
        axes.barh(names, left, color="#b0b0b0", label="all phases")

    decimals = max(0, 2 - math.floor(math.log10(summary.seconds_per_step.max())))
    of_baseline = summary.seconds_per_step[summary.series == baseline]
    for name, series, end, seconds in zip(
        names, summary.series, left, summary.seconds_per_step, strict=True
    ):
        text = f" {seconds:.{decimals}f} s"
        if len(of_baseline) and series != baseline:
            text += f"\n {seconds / of_baseline.iloc[0]:.2f}×"
        axes.text(end, name, text, va="center", fontsize="small")

    axes.invert_yaxis()
    axes.margins(x=0.2)  # for the text
    relative = f"; ×: relative to {style.legend_name(str(baseline))}" if len(of_baseline) else ""
    axes.set_xlabel(f"time per step (s){relative}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5)
    axes.grid(visible=False, axis="y")


def scaling_family(runs: pd.DataFrame, by: str, fixed: str) -> pd.DataFrame | None:
    """Find the runs that differ only in n and m and the seed, with the longest line of values.

    Each value of `fixed` that has two values of `by` or more makes a line. Where n = m nothing is
    left out, so such a run belongs to every rule.
    """
    families = []
    for _, rows in runs.groupby("settings"):
        for rule in [rule for rule in rows.rule.unique() if rule != "all"]:
            family = rows[rows.rule.isin([rule, "all"])]
            length = family.groupby(fixed)[by].transform("nunique")
            if length.max() >= LEAST:
                families.append((length.max(), len(family), family[length > 1]))
    best = max(families, key=lambda family: family[:2], default=None)
    return None if best is None else best[-1]


def outcome_by(
    axes: Axes, study: Study, table: pd.DataFrame, by: str, outcome: str, line: str | None
) -> None:
    """Draw one outcome of finished runs, a row each, against n, m or the rule.

    A run is a dot, and each value of the column `line` makes a line of means ± stderr.
    """
    values = sorted(table[by].unique())
    lines = [("", table)]
    if line is not None:
        lines = [(f"{line} = {value}, ", rows) for value, rows in table.groupby(line)]

    for index, (which, runs) in enumerate(lines):
        beside = 0.06 * (index - (len(lines) - 1) / 2)  # so that no line hides another one's error
        look, groups = style.marker_and_colour(index), runs.groupby(by)[outcome]
        at, counts = runs[by].map(values.index) + beside, groups.count()
        axes.scatter(at, runs[outcome], s=12, alpha=0.35, color=look["color"], linewidths=0)
        axes.errorbar(
            [values.index(value) + beside for value in counts.index],
            groups.mean(),
            yerr=groups.sem().fillna(0),
            **look,
            linestyle="-" if by in SIZES else "none",
            capsize=3,
            label=f"{which}{style.seeds(study, counts)}",
        )

    names = [str(value).rpartition(":")[2] for value in values]  # of a rule, the function
    tilt = 0 if sum(map(len, names)) < 30 else 30  # characters that fit beside each other
    axes.set_xticks(range(len(values)), names, rotation=tilt, ha="right" if tilt else "center")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(SIZES.get(by, "down-sampling rule"))
