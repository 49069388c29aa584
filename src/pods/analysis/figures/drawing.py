"""Draw on axes: metrics over time, differences to a baseline, and outcomes of finished runs.

Shapes: K = markers of a curve.
"""

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


def against_time(axes: Axes, curve: pd.DataFrame, study: Study) -> None:
    """Draw one metric of each series over time: mean, standard error, and a line per run.

    Imported logs are dashed.
    """
    metric, dash = str(curve.metric.iloc[0]), "-" if study.seeded else "--"
    unit, _ = style.x_unit(study, curve[study.x].max())
    for series, points in curve.groupby("series", sort=False):
        look, times = style.look_of(study, str(series)), points[study.x] / unit
        runs = all_curves(study, str(series), metric) if metric in study.evaluations else []
        lines = [np.stack([run.seconds / unit, run.accuracy], -1) for run in runs]
        thin = {"alpha": 0.18, "linewidth": 0.7, "linestyle": dash, "color": look["color"]}
        axes.add_collection(LineCollection(lines, **thin))
        count = style.count_range(points.runs[points.runs > 0], " to ")
        label = f"{style.legend_name(str(series))}  (n={count})"
        marks = marker_positions(study, metric, str(series)) / unit
        band = (points["mean"] - points.stderr, points["mean"] + points.stderr)
        _banded_line(axes, times, points["mean"], band, marks, look | {"linestyle": dash}, label)


def differences(axes: Axes, table: pd.DataFrame, study: Study) -> None:
    """Draw the difference of each arm to the baseline, at least one, with its 95 % t interval."""
    unit, _ = style.x_unit(study, table[study.x].max())
    axes.axhline(0, color="#000000", linewidth=0.7)
    for series, points in table.groupby("series", sort=False):
        look, times = style.look_of(study, str(series)), points[study.x] / unit
        marks = marker_positions(study, "accuracy", str(series)) / unit
        band = (study.scale * points.low, study.scale * points.high)
        name = style.legend_name(str(series))
        _banded_line(axes, times, study.scale * points.estimate, band, marks, look, name)
    what = "points" if study.share else "score"
    axes.set_ylabel(f"{what} above {style.legend_name(table.baseline.iloc[0])}\n(95 % t interval)")


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
    axes.plot(marks, heights, **{**look, "linestyle": ""})
    axes.plot([], [], **look, label=label)


def seconds_per_step(axes: Axes, summary: pd.DataFrame) -> None:
    """Draw the mean seconds per step of each series, stacked by phase."""
    names, left = summary.series.map(style.legend_name), pd.Series(0.0, index=summary.index)
    for column in phase_columns(summary):
        phase, widths = column.removeprefix("seconds/"), summary[column]
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(names, widths, left=left, color=style.PHASE_COLOURS[phase], label=phase)
            left = left + widths.fillna(0)
    if not left.any():  # imported logs have no phases
        axes.barh(names, summary.seconds_per_step, color="#999999", label="all")
    axes.invert_yaxis()
    axes.set_xlabel("time per step, mean over all steps (s)")
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


def outcome_by(axes: Axes, table: pd.DataFrame, by: str, outcome: str, line: str | None) -> None:
    """Draw one outcome of finished runs, a row each, against n, m or the rule.

    A run is a dot, and each value of the column `line` makes a line of means ± stderr.
    """
    values = sorted(table[by].unique())
    lines = (
        [("", table)] if line is None else [(f"{line} = {v}, ", t) for v, t in table.groupby(line)]
    )
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
            label=f"{which}mean ± 1 stderr over {style.count_range(counts, '-')} runs",
        )
    names = [str(value).rpartition(":")[2] for value in values]  # of a rule, the function
    tilt = 0 if sum(map(len, names)) < 40 else 30  # characters that fit beside each other
    axes.set_xticks(range(len(values)), names, rotation=tilt, ha="right" if tilt else "center")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(SIZES.get(by, "down-sampling rule"))
