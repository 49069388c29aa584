"""Draw tables on axes: a plot function takes axes and returns nothing; saving is separate."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from pods.analysis.curves import phase_columns
from pods.analysis.look import Band
from pods.analysis.statistics import Floats
from pods.analysis.study import Study, indices_by_run
from pods.analysis.view import SHARES
from pods.runs.files import replace

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#F0E442", "#882255", "#999933", "#332288", "#999999"),
)
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
MOST_MARKERS = 12  # per curve
FONT_SIZE = 9.0
LONGEST_NAME = 40  # characters of a curve's name in a legend
PHASE_COLOURS = {  # light, so that a phase is not taken for a curve
    "generate": "#56B4E9",
    "reward": "#F0E442",
    "select": "#CC79A7",
    "update": "#E69F00",
    "sync": "#999999",
}
LABELS = {
    "accuracy": "accuracy",
    "lenient": "accuracy by the PODS authors' grader",
    "format": "share in the requested format",
    "both": "correct and in the format",
    "length": "completion tokens",
    "reward": "training reward",
    "zero_variance_fraction": "groups without variance",
    "kept_reward_variance": "reward variance, trained on",
    "generated_rollouts": "rollouts generated per step",
    "rollouts_saved": "rollouts saved per step",
}
SIZES = {"n": "rollouts generated per prompt, n", "m": "rollouts trained on, m"}
X_LABELS = {
    "steps": "steps",
    "rollouts": "rollouts generated",
    "generated_tokens": "tokens generated",
    "trained_tokens": "tokens trained on",
}
METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}
UNITS = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def style(index: int) -> dict[str, Any]:
    """Return colour and marker of the curve with this index in the legend."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit that suits an axis of this length: its seconds and its symbol."""
    return next((size, symbol) for above, size, symbol in UNITS if seconds >= above)


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
        label = f"{shortened(str(series))}  (n={_range(points.n, ' to ')})"
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


def shortened(name: str) -> str:
    """Cut a long name of a curve in the middle; captions and tables have the whole.

    >>> shortened("pods 64→16, update.logprob_temperature=sampling, seed=1")
    'pods 64→16, update.logp…sampling, seed=1'
    """
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME // 2 + 3]}…{name[-(LONGEST_NAME // 2 - 4) :]}"


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


def x_unit(study: Study, end: float) -> float:
    """Return the seconds of the time axis' unit; 1 where x is no time."""
    return time_unit(end)[0] if study.x == "train_seconds" else 1.0


def x_axis(axes: Axes, study: Study, end: float, small: bool = False) -> None:
    """Label the axis that curves are drawn over, from 0 to this end; a small one in few words."""
    if study.x == "train_seconds":
        time_axis(axes, end, () if small else study.machines)
    else:
        axes.set_xlabel(X_LABELS[study.x])
        axes.set_xlim(0, end or 1.0)


def time_axis(axes: Axes, seconds: float, machines: Sequence[str]) -> None:
    """Label the axis of training time."""
    size, symbol = time_unit(seconds)
    where = f" on {', '.join(machines)}" if machines else ""
    axes.set_xlabel(f"training time{where} ({symbol})")
    axes.set_xlim(0, seconds / size or 1.0)


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
        name = shortened(str(series))
        _marked_line(axes, times, factor * points.estimate, marks, look, name)
    shown = factor * table.loc[table.series != cut, ["estimate", "low", "high"]]
    if 0 < len(shown) < len(table):
        cut_below(axes, min(0.0, shown.min().min()), max(0.0, shown.max().max()))
    axes.set_ylabel(
        f"{'points above' if shares else 'above'} {shortened(table.baseline.iloc[0])}\n"
        "(95 % t interval)"
    )
    axes.grid(visible=True, alpha=0.25)


def seconds_per_step(axes: Axes, summary: pd.DataFrame) -> None:
    """Draw the mean seconds per step of each series, stacked by phase."""
    left = pd.Series(0.0, index=summary.index)
    slow = summary.seconds_per_step.max() >= 2
    factor, symbol = (1.0, "s") if slow else (1000.0, "ms")
    for column in phase_columns(summary):
        phase, widths = column.removeprefix("seconds/"), factor * summary[column]
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(summary.series, widths, left=left, color=PHASE_COLOURS[phase], label=phase)
            left = left + widths.fillna(0)
    if not left.any():  # imported logs have no phases
        axes.barh(summary.series, factor * summary.seconds_per_step, color="#999999", label="all")
    axes.invert_yaxis()
    axes.set_xlabel(f"time per step, mean over all steps ({symbol})")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False)
    axes.grid(axis="x", alpha=0.25)


def outcome_by(
    axes: Axes, table: pd.DataFrame, by: str, name: str, label: str, line: str | None = None
) -> None:
    """Draw one outcome of finished runs against n, m or the rule: a dot per run, mean ± stderr.

    Args:
        axes: what to draw on.
        table: one row per run, with the columns `by`, `name` and `line`.
        by: the column that is varied.
        name: the column of the outcome.
        label: its title, with the unit.
        line: the column whose values make a line each; None: there is one line.
    """
    values = sorted(table[by].unique())
    lines = (
        [("", table)] if line is None else [(f"{line} = {v}, ", t) for v, t in table.groupby(line)]
    )
    for index, (which, runs) in enumerate(lines):
        beside = 0.06 * (index - (len(lines) - 1) / 2)  # so that no line hides another one's error
        at = runs[by].map(values.index) + beside
        colour = style(index)["color"]
        axes.scatter(at, runs[name], s=12, alpha=0.35, color=colour, linewidths=0)
        groups = runs.groupby(by)[name]
        counts = groups.count()
        axes.errorbar(
            [values.index(value) + beside for value in counts.index],
            groups.mean(),
            yerr=groups.sem().fillna(0),
            **style(index),
            linestyle="-" if by in SIZES else "none",
            capsize=3,
            label=f"{which}mean ± 1 stderr over {_range(counts, '-')} runs"
            if counts.max() > 1
            else f"{which}one run each",
        )
    names = [str(value).rpartition(":")[2] for value in values]  # of a rule, the function
    tilt = 0 if sum(map(len, names)) < 40 else 30  # characters that fit beside each other
    axes.set_xticks(range(len(values)), names, rotation=tilt, ha="right" if tilt else "center")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(SIZES.get(by, "down-sampling rule"))
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.25)


def _range(counts: "pd.Series[int]", to: str) -> str:
    least, most = counts.min(), counts.max()
    return f"{most}" if least == most else f"{least}{to}{most}"


def panels(
    count: int,
    width: float,
    height: float,
    widths: Sequence[float] | None = None,
    size: float | None = FONT_SIZE,
) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` axes in a row; sizes in inches, relative `widths`.

    The font has this size in points; None: that of the current style.
    """
    matplotlib.rc("pdf", fonttype=42)  # text stays text
    matplotlib.rc("svg", hashsalt="pods")  # equal figures, equal bytes
    if size is not None:
        matplotlib.rc("font", size=size)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, width_ratios=widths)[0])


def below(axes: Axes, share: float) -> Axes:
    """Make a panel below another one, with the same x axis, from this share of its height."""
    whole = axes.get_subplotspec()
    assert whole is not None  # `panels` made the axes
    halves = whole.subgridspec(2, 1, height_ratios=(1 - share, share))
    axes.set_subplotspec(halves[0])
    figure = axes.get_figure(root=True)
    assert figure is not None
    panel: Axes = figure.add_subplot(halves[1], sharex=axes)
    axes.tick_params(labelbottom=False)
    return panel


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Write PNG, PDF or SVG files, each atomically; the same figure gives the same bytes."""
    figure.draw_without_rendering()  # lay it out once, not once per format
    figure.set_layout_engine("none")
    for path in paths:
        content, dpi = BytesIO(), 150 if figure.get_figwidth() > 5 else 300
        form, metadata = path.suffix[1:], METADATA[path.suffix]
        figure.savefig(content, format=form, dpi=dpi, metadata=metadata)
        replace(path, content.getvalue())
