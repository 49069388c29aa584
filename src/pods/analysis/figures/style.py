"""What the figures share: colours, names, axis labels, and how a figure is saved."""

import math
import re
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from pods.analysis.loading.series_names import SEPARATOR
from pods.analysis.loading.study import MEASURED, Study
from pods.analysis.numbers.outcomes import MEASURES, measure
from pods.runs.files import replace

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
    "#999999",
    "#F0E442",
)
"""The first seven and the last, pale on white, are those of Okabe and Ito, which the colour-blind
can tell apart."""
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
WIDTH = 6.4  # inches of a figure with one panel
HEIGHT = 4.2
SEVERAL_WIDTH = 4.4  # inches of each of several panels, two in a row
SEVERAL_HEIGHT = 3.3
LONGEST_NAME = 28  # characters of a curve's name on one line
LONGEST_LINE = 34  # characters of a line below it
LEGEND_COLUMN = 3.2  # inches that fit the longest line
LEGEND_LINE = 0.2  # inches that a line of a legend is high
GRID_LEGEND = 0.8  # inches for title and legend that a figure with several panels has anyway
LINES_INSIDE = 8  # of a legend that leaves the curves of a panel their place
PHASE_COLOURS = {  # grey, since a colour belongs to an arm
    "generate": "#d0d0d0",
    "reward": "#404040",
    "select": "#202020",
    "update": "#909090",
    "sync": "#606060",
    "all phases": "#b0b0b0",
}
LABELS = MEASURES | {
    "both": "correct and in the format",
    "length": "completion tokens",
    "reward": "training reward",
    "zero_variance_fraction": "groups without variance",
    "kept_reward_variance": "reward variance of the kept",
    "generated_rollouts": "rollouts generated per step",
    "rollouts_saved": "rollouts saved per step",
}
METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}
AMOUNTS = {"train_seconds": "training time", "dollars": "cost", "steps": "training steps"}
"""Labels of what curves are drawn over."""
screen = partial(style.context, "pods.analysis.figures.screen")
"""The context in which a study's figures are drawn."""
BAND = "mean ± 1 standard error"


def marker_and_colour(index: int) -> dict[str, Any]:
    """Return colour and marker of the arm with this index in the study."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def look_of(study: Study, series: str) -> dict[str, Any]:
    """Return colour and marker of an arm, which it keeps when other arms are not shown."""
    return marker_and_colour(study.order.index(series))


def legend_name(name: str) -> str:
    """Write a curve's name for a legend: keys by their last part, below the arm if it gets long.

    >>> legend_name("pods 64→16, update.lr=0.001")
    'pods 64→16, lr=0.001'
    >>> legend_name("pods 64→16, update.lr=1e-05, task.grader=exact")
    'pods 64→16\\nlr=1e-05, grader=exact'
    """
    shortened = re.sub(rf"({SEPARATOR})[\w.]*\.(?=\w+=)", r"\1", name)
    if len(shortened) <= LONGEST_NAME:
        return shortened
    arm, _, keys = shortened.partition(SEPARATOR)
    lines = wrap(keys, LONGEST_LINE, break_long_words=False)
    return "\n".join([arm, *lines])


def seeds(study: Study, counts: "pd.Series[int]") -> str:
    """Say how many seeds some numbers are of: 8 seeds, or 2 to 3 seeds.

    Where a seed decides nothing, as in imported logs, they are runs.
    """
    word = "seed" if study.seeded else "run"
    least = counts.min()
    most = counts.max()
    if least < most:
        return f"{least} to {most} {word}s"
    return f"1 {word}" if most == 1 else f"{most} {word}s"


def legend_texts(study: Study, table: pd.DataFrame, band: str) -> tuple[str, dict[str, str]]:
    """Return the title of a legend, which explains the band, and the label of each series.

    The number of seeds stands in the title if it is the same for all series, else in each label.
    The rows of `table` have series and runs.
    """
    labels = {}
    numbers = {}
    for series, runs in table.groupby("series", sort=False).runs:
        labels[str(series)] = legend_name(str(series))
        numbers[str(series)] = seeds(study, runs[runs > 0])

    different = set(numbers.values())
    if len(different) > 1:
        for series, number in numbers.items():
            labels[series] += f" ({number})"
        return band, labels

    [number] = different
    if number in ("1 seed", "1 run"):  # which has no band
        return number, labels
    return f"{band}, {number}", labels


def legend_inside(figure: Figure, axes: Axes, title: str) -> None:
    """Draw the legend of a single panel: in it if it has room there, else below."""
    handles, labels = axes.get_legend_handles_labels()
    lines = "\n".join(labels).count("\n") + 1
    if lines <= LINES_INSIDE:
        legend = axes.legend(
            handles,
            labels,
            title=title,
            loc="best",
            frameon=True,
            framealpha=0.8,
            edgecolor="none",
            alignment="left",
        )
        figure.draw_without_rendering()  # which places it
        if not _covers(legend, axes):
            return
        legend.remove()

    legend_below(figure, axes, title)


def _covers(legend: Legend, axes: Axes) -> bool:
    """Say whether a legend that has been placed hides a part of a curve."""
    box = legend.get_window_extent()
    for line in axes.lines:
        points = line.get_transform().transform(line.get_xydata())
        if len(points) and box.count_contains(points):
            return True
    return False


def legend_below(figure: Figure, axes: Axes, title: str | None, room: float = 0.0) -> None:
    """Draw one legend for all panels, where it covers no curve.

    The figure gets higher by what the legend needs beyond the `room`, in inches.
    """
    handles, labels = axes.get_legend_handles_labels()
    columns = _columns(figure)
    lines = "\n".join(labels).count("\n") + 1
    needed = LEGEND_LINE * (lines + 1) / columns
    figure.set_figheight(figure.get_figheight() + max(0.0, needed - room))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)


def _columns(figure: Figure) -> int:
    return max(1, int(figure.get_figwidth() / LEGEND_COLUMN))


def percent(study: Study) -> tuple[float, str]:
    """Return by what the study's accuracies are multiplied in figures, and the unit: 100 and %.

    A score of another trainer's logs that is no share is drawn as it is.
    """
    return study.scale, " (%)" if study.share else ""


def accuracy_label(study: Study) -> str:
    """Return what the axis of the accuracy says, without its unit, such as test accuracy."""
    label = measure(study)
    is_ours = "folder" in study.runs  # elsewhere accuracy may be that of the training set
    if is_ours and study.metric in ("accuracy", "lenient"):
        return f"test {label}"
    return label


def x_unit(study: Study, end: float) -> tuple[float, str]:
    """Return the unit that suits an axis up to this end: its seconds (1 of no time) and symbol."""
    if study.x == "dollars":
        return 1.0, "$"
    if study.x != "train_seconds":
        return 1.0, ""
    if end >= 7200:
        return 3600.0, "h"
    if end >= 300:
        return 60.0, "min"
    return 1.0, "s"


def x_title(study: Study) -> str:
    """Return what curves are drawn over: training time, cost at prices hosted, training steps."""
    title = AMOUNTS.get(study.x, study.x)
    return title if study.clock == MEASURED or study.x == "steps" else f"{title} {study.clock}"


def clock_word(study: Study) -> str:
    """Return what the clock counts: time, or at prices in dollars cost."""
    return "cost" if study.x == "dollars" else "time"


def per_step_label(study: Study) -> str:
    """Return what a step costs, with its unit: time per step (s), or at which prices."""
    unit = "$" if study.x == "dollars" else "s"
    prices = "" if study.prices is None else f" {study.clock}"
    return f"{clock_word(study)} per step{prices} ({unit})"


def x_axis(axes: Axes, study: Study, end: float) -> None:
    """Label the axis that curves are drawn over, from 0 to this end.

    Of a time or a cost that was not measured it says at which prices it is.
    """
    size, symbol = x_unit(study, end)
    label = x_title(study)
    axes.set_xlabel(f"{label} ({symbol})" if symbol else label)
    axes.set_xlim(0, end / size or 1.0)


def panel() -> tuple[Figure, Axes]:
    """Make a figure with one panel."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots()


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels, two in a row."""
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    width = SEVERAL_WIDTH * columns
    height = SEVERAL_HEIGHT * rows + GRID_LEGEND
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in axes[count:]:
        empty.remove()
    return figure, axes[:count]


def panels(
    count: int, width: float, height: float, widths: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` axes in a row; sizes in inches, relative `widths`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, width_ratios=widths)[0])


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Write PNG, PDF or SVG files, each atomically; the same figure gives the same bytes."""
    figure.draw_without_rendering()  # lay it out once, not once per format
    figure.set_layout_engine("none")
    for path in paths:
        content = BytesIO()
        figure.savefig(content, format=path.suffix[1:], metadata=METADATA[path.suffix])
        replace(path, content.getvalue())
