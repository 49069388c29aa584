"""What the figures share: colours, names, axis labels, and how a figure is saved."""

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
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#882255", "#999933", "#332288", "#999999", "#F0E442"),
)
"""The first seven and the last, pale on white, are those of Okabe and Ito, which the colour-blind
can tell apart."""
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
WIDTH, HEIGHT = 6.4, 4.2  # inches of a figure with one panel
SEVERAL_WIDTH, SEVERAL_HEIGHT = 4.4, 3.3  # inches of each of several panels, two in a row
LONGEST_NAME = 28  # characters of a curve's name on one line
LONGEST_LINE = 34  # characters of a line below it
LEGEND_COLUMN = 3.2  # inches that fit the longest line
LEGEND_LINE = 0.2  # inches that a line of a legend is high
LINES_INSIDE = 8  # of a legend that leaves the curves of a panel their place
PHASE_COLOURS = {  # grey, since a colour belongs to an arm
    "generate": "#d0d0d0",
    "reward": "#404040",
    "select": "#202020",
    "update": "#909090",
    "sync": "#606060",
    "modelled": "#b0b0b0",
}
LABELS = {
    **MEASURES,
    "length": "completion tokens",
    "reward": "training reward",
    "zero_variance_fraction": "groups without variance",
    "kept_reward_variance": "reward variance, trained on",
    "generated_rollouts": "rollouts generated per step",
    "rollouts_saved": "rollouts saved per step",
}
METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}
UNITS = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))
AMOUNTS = {"steps": "training steps"}
"""Labels of what curves are drawn over other than time."""
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
    arm, *keys = name.split(SEPARATOR)
    parts = [re.sub(r"^[\w.]*\.(?=\w+=)", "", key) for key in keys]
    whole = SEPARATOR.join([arm, *parts])
    if len(whole) <= LONGEST_NAME:
        return whole
    lines = wrap(SEPARATOR.join(parts), LONGEST_LINE, break_long_words=False)
    return "\n".join([arm, *lines])


def seeds(study: Study, counts: "pd.Series[int]") -> str:
    """Say how many seeds some numbers are of: 8 seeds, or 2 to 3 seeds.

    Where a seed decides nothing, as in imported logs, they are runs.
    """
    word = "seed" if study.seeded else "run"
    least, most = counts.min(), counts.max()
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"{number} {word}" if number == "1" else f"{number} {word}s"


def legend_texts(study: Study, table: pd.DataFrame, band: str) -> tuple[str, dict[str, str]]:
    """Return the title of a legend, which explains the band, and the label of each series.

    The number of seeds stands in the title if it is the same for all series, else in each label.
    The rows of `table` have series and runs.
    """
    numbers = {
        str(series): seeds(study, runs[runs > 0])
        for series, runs in table.groupby("series", sort=False).runs
    }
    names = {series: legend_name(series) for series in numbers}
    different = {*numbers.values()}
    if len(different) > 1:
        return band, {series: f"{names[series]} ({numbers[series]})" for series in names}
    (number,) = different
    return (number if number.startswith("1 ") else f"{band}, {number}"), names


def legend_inside(figure: Figure, axes: Axes, title: str) -> None:
    """Draw the legend of a single panel: in it if it has room there, else below."""
    handles, labels = axes.get_legend_handles_labels()
    box = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "alignment": "left"}
    lines = sum(label.count("\n") + 1 for label in labels)
    if lines <= LINES_INSIDE:
        legend = axes.legend(handles, labels, title=title, loc="best", **box)
        figure.draw_without_rendering()  # which places it
        if not _covers(legend, axes):
            return
        legend.remove()
    figure.set_figheight(HEIGHT + LEGEND_LINE * (lines + 1) / _columns(figure))
    legend_below(figure, axes, title)


def _covers(legend: Legend, axes: Axes) -> bool:
    """Say whether a legend that has been placed hides a part of a curve."""
    box = legend.get_window_extent()
    curves = [line.get_transform().transform(line.get_xydata()) for line in axes.lines]
    return any(box.count_contains(curve) for curve in curves if len(curve))


def legend_below(figure: Figure, axes: Axes, title: str | None) -> None:
    """Draw one legend for all panels, where it covers no curve."""
    handles, labels = axes.get_legend_handles_labels()
    about = {"ncols": _columns(figure), "title": title}
    figure.legend(handles, labels, loc="outside lower center", **about)


def _columns(figure: Figure) -> int:
    return max(1, int(figure.get_figwidth() / LEGEND_COLUMN))


def percent(study: Study) -> tuple[float, str]:
    """Return by what the study's accuracies are multiplied in figures, and the unit: 100 and %.

    A score of another trainer's logs that is no share is drawn as it is.
    """
    return study.scale, " (%)" if study.share else ""


def accuracy_label(study: Study) -> str:
    """Return what the axis of the accuracy says, without its unit: test accuracy, or pass@5."""
    own = "folder" in study.runs  # elsewhere accuracy may be that of the training set
    tested = own and study.metric in ("accuracy", "lenient")
    return f"test {measure(study)}" if tested else measure(study)


def x_unit(study: Study, end: float) -> tuple[float, str]:
    """Return the unit that suits an axis up to this end: its seconds (1 of no time) and symbol."""
    units = UNITS if study.x == "train_seconds" else ((0.0, 1.0, ""),)
    return next((size, symbol) for above, size, symbol in units if end >= above)


def x_axis(axes: Axes, study: Study, end: float) -> None:
    """Label the axis that curves are drawn over, from 0 to this end.

    Of a time that was not measured it says by which prices it is modelled.
    """
    size, symbol = x_unit(study, end)
    modelled = "" if study.clock == MEASURED else f" {study.clock}"
    time = f"training time{modelled} ({symbol})"
    axes.set_xlabel(time if symbol else AMOUNTS.get(study.x, study.x))
    axes.set_xlim(0, end / size or 1.0)


def panel() -> tuple[Figure, Axes]:
    """Make a figure with one panel."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots()


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels, two in a row."""
    columns = min(count, 2)
    rows = -(-count // columns)
    size = SEVERAL_WIDTH * columns, SEVERAL_HEIGHT * rows + 0.8  # a title and a legend
    figure = Figure(figsize=size, layout="constrained")
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
