"""Write what `pods probe` found: a figure with a panel per rule, its data as CSV, its origin."""

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pods.analysis.figures import style
from pods.analysis.figures.drawing import SIZES
from pods.analysis.writing import write_json
from pods.runs.files import replace
from pods_lab.probe.moments import OUTCOMES

COLUMNS = 4  # panels in a row
SHOWN = {
    "relative": "progress per second, GRPO 16→16 = 1",
    "cosine": "cosine to the gradient of the expected reward",
}


def draw(table: pd.DataFrame, title: str) -> Figure:
    """Draw a map over n and m for each rule: of progress per second where that is known."""
    shown = "relative" if table.relative.notna().any() else "cosine"
    rules = list(dict.fromkeys(table.rule))
    rows = len(rules) // COLUMNS
    figure = Figure(figsize=(3.1 * COLUMNS, 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).ravel()
    scale = Normalize(vmin=table[shown].min(), vmax=table[shown].max())
    for panel, rule in zip(axes, rules, strict=True):
        _map(panel, table[table.rule == rule], shown, scale)
        panel.set_title(rule)
    figure.supxlabel(SIZES["m"])
    figure.supylabel(SIZES["n"])
    figure.suptitle(f"{title}\n{SHOWN[shown]}, with its 95 % interval over prompts", fontsize=10)
    return figure


def _map(axes: Axes, table: pd.DataFrame, shown: str, scale: Normalize) -> None:
    grid = table.pivot(index="n", columns="m", values=shown)
    axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis", norm=scale)
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.index)), grid.index)
    for row in table.to_dict("records"):
        value = row[shown]
        text = f"{value:.2f}\n{row[f'{shown}_low']:.2f}..{row[f'{shown}_high']:.2f}"
        colour = "black" if scale(value) > 0.6 else "white"  # viridis becomes lighter
        x = list(grid.columns).index(row["m"])
        y = list(grid.index).index(row["n"])
        axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color=colour)


def write(
    table: pd.DataFrame, law: pd.DataFrame, about: Mapping[str, object], stem: Path, title: str
) -> Path:
    """Write figure, both CSV and JSON beside each other; return the path of the figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    style.save(draw(table, title), [Path(f"{stem}{suffix}") for suffix in style.METADATA])
    replace(Path(f"{stem}.csv"), table.to_csv(index=False, float_format="%.6g"))
    replace(Path(f"{stem}.law.csv"), law.to_csv(index=False, float_format="%.6g"))
    rows = json.loads(table.to_json(orient="records"))  # NaN is null
    write_json(Path(f"{stem}.json"), dict(about) | {"rows": rows})
    return Path(f"{stem}.png")


def readable(table: pd.DataFrame, law: pd.DataFrame) -> str:
    """Return both tables for a terminal, each outcome with its interval."""
    shown = table[["rule", "n", "m"]].copy()
    for name in OUTCOMES:
        if table[name].notna().any() and name not in ("progress", "per_second"):
            ends = table[[name, f"{name}_low", f"{name}_high"]].to_numpy()
            shown[name] = [f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in ends]
    constants = law.to_string(index=False, float_format="{:.3g}".format)
    return f"{shown.to_string(index=False)}\n\n{constants}\n"
