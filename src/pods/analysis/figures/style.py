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

from pods.analysis.loading.series_names import SEPARATOR
from pods.analysis.loading.study import MEASURED, Study
from pods.analysis.numbers.outcomes import MEASURES
from pods.runs.files import replace

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#000000", "#F0E442", "#882255", "#999933", "#332288", "#999999"),
)
MARKERS = "osD^vP*<>Xp"  # one fewer than colours, so that pairs repeat only after 132 series
LONGEST_NAME = 28  # characters of a curve's name on one line
LONGEST_LINE = 34  # characters of a line below it
LEGEND_COLUMN = 3.5  # inches that fit the longest line
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
screen = partial(style.context, "pods.analysis.figures.screen")
"""The context in which a study's figures are drawn."""
BAND = "mean over n runs ± 1 standard error; thin lines: single runs"


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


def legend_below(figure: Figure, axes: Axes, title: str | None = BAND) -> None:
    """Draw one legend for all panels, where it covers no curve."""
    columns = max(1, int(figure.get_figwidth() / LEGEND_COLUMN))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)


def x_unit(study: Study, end: float) -> tuple[float, str]:
    """Return the unit that suits an axis up to this end: its seconds (1 of no time) and symbol."""
    units = UNITS if study.x == "train_seconds" else ((0.0, 1.0, ""),)
    return next((size, symbol) for above, size, symbol in units if end >= above)


def x_axis(axes: Axes, study: Study, end: float) -> None:
    """Label the axis that curves are drawn over, from 0 to this end.

    Of training time it says on which machines it was measured, or by which prices it is modelled.
    """
    size, symbol = x_unit(study, end)
    where = f"on {', '.join(study.machines)}" if study.clock == MEASURED else study.clock
    axes.set_xlabel(f"training time {where} ({symbol})" if symbol else study.x)
    axes.set_xlim(0, end / size or 1.0)


def count_range(counts: "pd.Series[int]", to: str) -> str:
    """Show the least and the most of some counts, or the one number that all are."""
    least, most = counts.min(), counts.max()
    return f"{most}" if least == most else f"{least}{to}{most}"


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
