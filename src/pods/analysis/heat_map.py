"""Heat maps over n and m: accuracy, and what a step costs, where a study has a grid of both."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pods.analysis import plots
from pods.analysis.series_names import SEPARATOR

LEAST = 2  # values of n, and of m, that make a grid
KEYS = ["grid", "n", "m"]
OUTCOMES = ["mean_accuracy", "seconds_per_step"]


@dataclass(frozen=True)
class Panel:
    """What one heat map of each grid shows."""

    outcome: str
    """One of `OUTCOMES`."""
    label: str
    """Its name and unit, beside the colours."""
    factor: float
    """What turns it into that unit."""
    colours: str
    """The name of a colour map."""


def grid_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Find the complete runs of one rule and otherwise equal settings at two n and two m or more.

    Runs with n = m leave nothing out, so they belong to the grid of every rule, but make none.

    Args:
        runs: one row per run; see `pods.analysis.tables.run_table`.

    Returns:
        The rows with a column `grid`: the rule, and the settings where a rule has several grids.
        Empty if there is no grid.
    """
    complete, found = runs[runs.mean_accuracy.notna()], []
    for rest, rows in complete.groupby("rest"):
        for rule, of_rule in rows[rows.n > rows.m].groupby("rule"):
            if min(of_rule.n.nunique(), of_rule.m.nunique()) >= LEAST:
                name = str(rule).rpartition(":")[2]
                found.append(rows[rows.rule.isin([rule, "all"])].assign(grid=name, _rest=rest))
    if not found:
        return runs.head(0).assign(grid="")
    grids = pd.concat(found, ignore_index=True)
    several = grids.groupby("grid")._rest.transform("nunique") > 1
    named = grids.grid.where(~several, (grids.grid + SEPARATOR + grids._rest).str.strip(SEPARATOR))
    return grids.assign(grid=named).drop(columns="_rest")


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Average the runs of each cell: grid, n, m, and mean, sem and count of each outcome."""
    table = runs.groupby(KEYS)[OUTCOMES].agg(["mean", "sem", "count"])
    table.columns = pd.Index(["_".join(names) for names in table.columns])
    return table.reset_index()


def heat_maps(table: pd.DataFrame, panels: list[Panel]) -> Figure:
    """Draw a heat map of each panel's outcome for each grid, side by side, with one scale each.

    Args:
        table: see `cells`; at least one row.
        panels: what is drawn.
    """
    grids = [str(name) for name in table.grid.unique()]
    count = len(grids) * len(panels)
    width = max(3.4, 1.6 + 0.72 * table.m.nunique())
    figure, axes = plots.panels(count, width * count, max(3.0, 1.4 + 0.55 * table.n.nunique()))
    pairs = [(grid, panel) for grid in grids for panel in panels]
    for one, (grid, panel) in zip(axes, pairs, strict=True):
        shown = panel.factor * table[f"{panel.outcome}_mean"]
        scale = Normalize(shown.min(), shown.max())
        heat_map(one, table[table.grid == grid], panel, scale)
        if len(grids) > 1:
            one.set_title(grid)
    return figure


def heat_map(axes: Axes, table: pd.DataFrame, panel: Panel, scale: Normalize) -> None:
    """Draw one outcome with m to the right and n upwards, its value ± stderr in each cell.

    A cell without runs stays blank.
    """
    of_cell = table.set_index(["n", "m"])
    values = panel.factor * of_cell[f"{panel.outcome}_mean"].unstack("m")
    errors = (panel.factor * of_cell[f"{panel.outcome}_sem"].unstack("m")).to_numpy(float)
    colours = colormaps[panel.colours]
    image = axes.pcolormesh(
        np.ma.masked_invalid(values), cmap=colours, norm=scale, edgecolors="white", linewidth=1
    )
    for (row, column), value in np.ndenumerate(values.to_numpy(float)):
        if np.isfinite(value):
            error = float(errors[row, column])
            text = _number(value) + ("" if np.isnan(error) else f"\n± {_number(error)}")
            red, green, blue, _ = colours(scale(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            at, colour = (column + 0.5, row + 0.5), "white" if dark else "black"
            axes.text(*at, text, fontsize=8, ha="center", va="center", color=colour)
    axes.set_xticks(np.arange(values.shape[1]) + 0.5, [str(m) for m in values.columns])
    axes.set_yticks(np.arange(values.shape[0]) + 0.5, [str(n) for n in values.index])
    axes.tick_params(length=0)
    axes.set_xlabel(plots.SIZES["m"])
    axes.set_ylabel(plots.SIZES["n"])
    figure = axes.get_figure(root=True)
    assert figure is not None  # `panels` made the axes
    figure.colorbar(image, ax=axes, label=panel.label)


def _number(value: float) -> str:
    """Show a value with three digits, and not more than two of them after the point.

    >>> _number(71.234), _number(0.456), _number(1234.5)
    ('71.2', '0.46', '1234')
    """
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
