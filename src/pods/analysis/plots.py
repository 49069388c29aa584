"""Draw tables on axes: a plot function takes axes and returns nothing; saving is separate."""

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis.curves import phase_columns
from pods.analysis.series_names import SEPARATOR
from pods.analysis.study import MEASURED, Study
from pods.runs.files import replace

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#F0E442", "#882255", "#999933", "#332288", "#999999"),
)
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
FONT_SIZE = 9.0
LONGEST_NAME = 28  # characters of a curve's name on one line
LONGEST_LINE = 34  # characters of a line below it
MOST_LINES = 20  # that fit beside the bars of a figure in its usual font
PHASE_COLOURS = {  # light, so that a phase is not taken for a curve
    "generate": "#56B4E9",
    "reward": "#F0E442",
    "select": "#CC79A7",
    "update": "#E69F00",
    "sync": "#999999",
    "modelled": "#999999",
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


def legend_name(name: str) -> str:
    """Write a curve's name for a legend: keys by their last part, below the arm if it gets long.

    >>> legend_name("pods 64→16, update.lr=0.001")
    'pods 64→16, lr=0.001'
    >>> legend_name("pods 64→16, model.quantization=none, task.grader=exact")
    'pods 64→16\\nquantization=none, grader=exact'
    """
    arm, *keys = name.split(SEPARATOR)
    parts = [re.sub(r"^[\w.]*\.(?=\w+=)", "", key) for key in keys]
    whole = SEPARATOR.join([arm, *parts])
    if len(whole) <= LONGEST_NAME:
        return whole
    lines = wrap(SEPARATOR.join(parts), LONGEST_LINE, break_long_words=False)
    return "\n".join([arm, *lines])


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit that suits an axis of this length: its seconds and its symbol."""
    return next((size, symbol) for above, size, symbol in UNITS if seconds >= above)


def x_unit(study: Study, end: float) -> float:
    """Return the seconds of the time axis' unit; 1 where x is no time."""
    return time_unit(end)[0] if study.x == "train_seconds" else 1.0


def x_axis(axes: Axes, study: Study, end: float, small: bool = False) -> None:
    """Label the axis that curves are drawn over, from 0 to this end; a small one in few words."""
    if study.x == "train_seconds":
        time_axis(axes, end, () if small else study.machines, study.clock)
    else:
        axes.set_xlabel(X_LABELS[study.x])
        axes.set_xlim(0, end or 1.0)


def time_axis(axes: Axes, seconds: float, machines: Sequence[str], clock: str = MEASURED) -> None:
    """Label the axis of training time: with the machines that it was measured on, or its model."""
    size, symbol = time_unit(seconds)
    where = f" on {', '.join(machines)}" if machines else ""
    where = where if clock == MEASURED else f" {clock}"
    axes.set_xlabel(f"training time{where} ({symbol})")
    axes.set_xlim(0, seconds / size or 1.0)


def seconds_per_step(axes: Axes, summary: pd.DataFrame) -> None:
    """Draw the mean seconds per step of each series, stacked by phase."""
    names, left = summary.series.map(legend_name), pd.Series(0.0, index=summary.index)
    slow = summary.seconds_per_step.max() >= 2
    factor, symbol = (1.0, "s") if slow else (1000.0, "ms")
    for column in phase_columns(summary):
        phase, widths = column.removeprefix("seconds/"), factor * summary[column]
        if summary[column].sum() > 0.01 * summary.seconds_per_step.sum():
            axes.barh(names, widths, left=left, color=PHASE_COLOURS[phase], label=phase)
            left = left + widths.fillna(0)
    if not left.any():  # imported logs have no phases
        axes.barh(names, factor * summary.seconds_per_step, color="#999999", label="all")
    axes.invert_yaxis()
    lines = len(names) * max(1 + name.count("\n") for name in names)
    if lines > MOST_LINES:
        axes.tick_params(axis="y", labelsize=FONT_SIZE * max(0.5, MOST_LINES / lines))
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
            label=f"{which}mean ± 1 stderr over {count_range(counts, '-')} runs"
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


def count_range(counts: "pd.Series[int]", to: str) -> str:
    """Show the least and the most of some counts, or the one number that all are."""
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
