"""The figures that a study supports: accuracy against time, phases of a step, n, m and rules."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis import curve_plots, heat_map, plots
from pods.analysis.curves import STEP_METRICS, phase_columns
from pods.analysis.differences import differences
from pods.analysis.look import DEFAULT, Look
from pods.analysis.noise import slow_runs
from pods.analysis.outcomes import MEASURES
from pods.analysis.series_names import SEPARATOR
from pods.analysis.study import MEASURED, Study
from pods.analysis.tables import Tables, end_text
from pods.analysis.view import SHARES
from pods.runs.attempts import command
from pods.runs.files import replace

CROWDED = 6  # a legend of more lines than this stands below the curves
PASSING = ("folder", "clock_decides", "wall_seconds", "load", "cores", "steal", "others")
"""Columns of runs that say where and when they ran, and are left out of a figure's record."""
SCALING = 3  # values of n or m that a scaling figure needs


@dataclass(frozen=True)
class Drawing:
    """A figure and the data that are written beside it."""

    name: str
    caption: str
    draw: Callable[[], Figure]
    table: pd.DataFrame
    """The data that are drawn."""
    runs: pd.DataFrame
    """The same data run by run."""
    detail: bool = False
    """The figure is drawn only on request, since it is not what the study is about."""
    differences: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Differences to the baseline, if they are drawn."""
    over: Study | None = None
    """Another study that is drawn in the figure."""


def drawings(study: Study, tables: Tables) -> Iterator[Drawing]:
    """Yield every figure for which the study has the runs."""
    curve, evaluations, about = tables.curves, study.evaluations, _about(study)
    yield accuracy(study, tables)
    phases = phase_columns(tables.summary)
    yield Drawing(
        "seconds_per_step",
        "Seconds per step by phase, mean over all steps of all runs.",
        partial(_phases, study, tables.summary),
        tables.summary[["series", "n", "seconds_per_step", *phases]],
        tables.runs,
        detail=True,
    )
    training = curve[curve.metric.isin(["lenient", "format", "both", "length", "reward"])]
    yield Drawing(
        "training",
        f"Other metrics over the training. {about}.",
        partial(_metrics, study, training),
        training,
        evaluations,
        detail=True,
    )
    selection = curve[curve.metric.isin({*STEP_METRICS} - {"reward"})]
    if len(selection):
        steps = study.steps.groupby(["series", "seed", "run"])[list(selection.metric.unique())]
        yield Drawing(
            "selection",
            f"The effect of selection: rollouts generated, and what is kept of them. {about}.",
            partial(_metrics, study, selection),
            selection,
            steps.mean().reset_index(),
            detail=True,
        )
    for by, fixed in (("n", "m"), ("m", "n")):
        family = _scaling_family(tables.runs, by, fixed)
        if family is not None:
            values = sorted(family[fixed].unique())
            where = f" at {fixed} = {values[0]}" if len(values) == 1 else f", a line per {fixed}"
            about = f"Outcomes by {by}{where}."
            yield _outcomes(study, f"{by}_scaling", about, family, by, fixed)
    grid = heat_map.grid_runs(tables.runs)
    if len(grid):
        yield _grid(study, grid)
    family = _rule_family(tables.runs)
    if family is not None:
        where = f"n = {family.n.iloc[0]}, m = {family.m.iloc[0]}"
        yield _outcomes(study, "rules", f"Down-sampling rules at {where}.", family, "rule")


def write(drawing: Drawing, study: Study, folder: Path) -> Path:
    """Write a figure as PNG, PDF and SVG, its data as CSV, and its origin as JSON."""
    stem = folder / drawing.name
    plots.save(drawing.draw(), [stem.with_suffix(suffix) for suffix in plots.METADATA])
    tables = {".csv": drawing.table, ".runs.csv": drawing.runs}
    if len(drawing.differences):
        tables[".differences.csv"] = drawing.differences
    for suffix, table in tables.items():
        text = study.labelled(table).to_csv(index=False, float_format="%.6g")
        replace(folder / f"{drawing.name}{suffix}", text)
    _write_origin(drawing, study, stem.with_suffix(".json"))
    return stem.with_suffix(".png")


def write_styled(drawing: Drawing, study: Study, paths: Sequence[Path], look: Look) -> None:
    """Write a figure that looks as chosen to some files, and its origin as JSON beside the first.

    Raises:
        ValueError: a file's format is unknown, or the style file cannot be read.
    """
    for path in paths:
        if path.suffix not in plots.METADATA:
            raise ValueError(f"out={path}: must end in {', '.join(plots.METADATA)}")
    with look.styled():
        plots.save(drawing.draw(), paths)
    _write_origin(drawing, study, paths[0].with_suffix(".json"))


def _write_origin(drawing: Drawing, study: Study, path: Path) -> None:
    about = {"figure": drawing.name, "caption": drawing.caption, **provenance(study)}
    if drawing.over is not None:
        about["overlay"] = provenance(drawing.over)
    replace(path, json.dumps(about, indent=1, ensure_ascii=False))


def provenance(study: Study) -> dict[str, Any]:
    """Record where numbers come from: command, runs with hash and versions, what was left out."""
    columns = [c for c in study.runs.columns if c not in PASSING]
    runs = study.runs[columns].astype(object).where(study.runs[columns].notna(), None)
    return {
        "study": study.name,
        "command": command(),
        "budget": study.budget,
        "clock": study.clock,
        "machines": study.machines,
        "note": study.note,
        "missing": study.missing,
        "mixed": study.inconsistencies,
        "noise": list(slow_runs(study).values()),
        "runs": runs.to_dict("records"),
    }


def title(study: Study) -> str:
    """Return the title of a figure, which marks missing and inconsistent runs."""
    return SEPARATOR.join([f"{study.name}: {_budget(study)}", *_marks(study)])


def _budget(study: Study) -> str:
    """Return the budget of a run, and whose prices its time is modelled by."""
    modelled = "" if study.clock == MEASURED else f", time {study.clock}"
    return f"{study.budget} per run{modelled}"


def _marks(study: Study) -> list[str]:
    marks = [f"INCOMPLETE: {len(study.missing)} missing"] if study.missing else []
    return marks + (["MIXED"] if study.inconsistencies else [])


def accuracy(study: Study, tables: Tables, look: Look = DEFAULT) -> Drawing:
    """Make the figure of accuracy against time (or the chosen metric and x)."""
    curve = tables.curves[tables.curves.metric == "accuracy"]
    to_baseline = differences(study)
    if look.panel == "differences" and to_baseline.empty:
        raise ValueError("panel=differences: needs a baseline and two arms of two runs or more")
    return Drawing(
        f"accuracy_vs_{'time' if study.x == 'train_seconds' else study.x}",
        " ".join([_caption(study, look, len(to_baseline) > 0), *_marks(study)]),
        partial(_accuracy, study, curve, tables.summary, to_baseline, look),
        curve,
        study.evaluations,
        differences=to_baseline,
    )


def _caption(study: Study, look: Look, to_baseline: bool) -> str:
    """Describe the panels of the figure of the accuracy, and its runs."""
    over, label = plots.X_LABELS.get(study.x, "training time"), MEASURES[study.metric]
    above = "differences to the baseline, 95 % t interval"
    if look.panel == "differences":
        return f"{label[0].upper()}{label[1:]} against {over}: {above}. {_budget(study)}."
    if look.panel == "time":
        return f"Time of a step, mean over all steps. {_budget(study)}."
    measured = look.small and study.clock == MEASURED
    where = f" Measured on {', '.join(study.machines)}." if measured else ""
    if look.panel == "accuracy":
        return f"{label[0].upper()}{label[1:]} against {over}. {_about(study, look)}.{where}"
    below = f"; below, {above}" if to_baseline else ""
    return (
        f"{label[0].upper()}{label[1:]} against {over}, and the time of a step. "
        f"{_about(study, look)}{below}."
    )


def _about(study: Study, look: Look = DEFAULT) -> str:
    return f"{_budget(study)}; mean over runs{look.error}, thin lines: single runs"


def _accuracy(
    study: Study, curve: pd.DataFrame, summary: pd.DataFrame, to_baseline: pd.DataFrame, look: Look
) -> Figure:
    every = look.panel == "all"
    lines = sum(1 + plots.legend_name(name).count("\n") for name in summary.series)
    crowded, more = lines > CROWDED, every and len(to_baseline) > 0
    height = 4.2 + (0.6 + 0.06 * lines if crowded else 0.0) + (1.8 if more else 0.0)
    height = height if every else 0.68 * look.inches
    size = None if look.style else look.size
    figure, [left, *rest] = plots.panels(
        1 + every, look.inches, height, (1.7, 1) if every else None, size
    )
    end = float(curve[study.x].max())
    unit = plots.x_unit(study, end)
    lowest = plots.below(left, 0.35) if more else left
    if look.panel in ("all", "accuracy"):
        _curves(left, study, curve, unit, look)
        if crowded:
            _legend_below(figure, left, look)
        else:
            left.legend(title=None if look.small else look.legend, loc="lower right")
    if more or look.panel == "differences":
        order, cut = list(curve.series.unique()), curve_plots.fallen(curve)
        curve_plots.differences(lowest, to_baseline, study, unit, order, cut)
        if not every:
            lowest.legend(loc="best")
    if look.panel == "time":
        plots.seconds_per_step(left, summary)
    else:
        plots.x_axis(lowest, study, end, look.small)
        if look.xlim is not None:
            lowest.set_xlim(look.xlim)
    if every:
        plots.seconds_per_step(rest[0], summary)
    figure.suptitle(title(study) if look.title is None else look.title)
    return figure


def _curves(axes: Axes, study: Study, curve: pd.DataFrame, unit: float, look: Look) -> None:
    """Draw the curves of the accuracy with their axis."""
    curve_plots.against_time(axes, curve, study, unit, band=look.band)
    if look.ylim is None:
        curve_plots.cut_fallen(axes, curve, study)
    else:
        axes.set_ylim(look.ylim)
    rows = study.evaluations
    passes = f" (mean of {rows.repeats.max()} passes over {rows.questions.max()} questions)"
    if study.metric == "reward":
        passes = " (mean since the last evaluation)"
    axes.set_ylabel(f"{plots.LABELS[study.metric]}{'' if look.small else passes}")


def _phases(study: Study, summary: pd.DataFrame) -> Figure:
    figure, [axes] = plots.panels(1, 6.5, 1.4 + 0.4 * len(summary))
    plots.seconds_per_step(axes, summary)
    figure.suptitle(title(study))
    return figure


def _metrics(study: Study, curve: pd.DataFrame) -> Figure:
    metrics = list(curve.metric.unique())
    figure, panels = plots.panels(len(metrics), 3.4 * len(metrics), 3.6)
    end = float(curve[study.x].max())
    for axes, metric in zip(panels, metrics, strict=True):
        curve_plots.against_time(
            axes, curve[curve.metric == metric], study, plots.x_unit(study, end)
        )
        plots.x_axis(axes, study, end)
        axes.set_ylabel(plots.LABELS[metric])
    _legend_below(figure, panels[0])
    figure.suptitle(title(study))
    return figure


def _legend_below(figure: Figure, axes: Axes, look: Look = DEFAULT) -> None:
    """Draw one legend for all panels, where it covers no curve."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(len(line) for label in labels for line in label.splitlines())
    column = 0.5 + 0.0725 * longest * look.size / DEFAULT.size  # inches
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=max(1, int(look.inches / column)),
        title=None if look.small else look.legend,
    )


def _outcomes(
    study: Study, name: str, caption: str, family: pd.DataFrame, by: str, line: str | None = None
) -> Drawing:
    """Make a figure of finished runs side by side: final and mean accuracy, and step time."""
    labels = {
        "final_accuracy": f"{MEASURES[study.metric]} at {end_text(family, study.x)}",
        "mean_accuracy": f"mean {MEASURES[study.metric]} until then",
        "seconds_per_step": "seconds per step",
    }
    keys = [by] if line is None else [line, by]
    table = family.groupby(keys)[list(labels)].agg(["mean", "sem", "count"]).reset_index()
    table.columns = pd.Index(["_".join(filter(None, parts)) for parts in table.columns])

    def draw() -> Figure:
        figure, panels = plots.panels(3, 11, 3.6)
        for axes, (outcome, label) in zip(panels, labels.items(), strict=True):
            plots.outcome_by(axes, family, by, outcome, label, line)
        handles, names = panels[0].get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=7)
        else:
            panels[0].legend(fontsize=7)
        figure.suptitle(f"{title(study)}\n{caption}")
        return figure

    return Drawing(name, caption, draw, table, family)


def _grid(study: Study, runs: pd.DataFrame) -> Drawing:
    """Make heat maps of the accuracy and of the time of a step over n and m."""
    table, measure = heat_map.cells(runs), MEASURES[study.metric]
    share, slow = study.metric in SHARES, table.seconds_per_step_mean.max() >= 2
    mean = f"mean {measure} until {end_text(runs, study.x)}{', %' if share else ''}"
    time = f"{'' if slow else 'milli'}seconds per step"
    shown = [
        heat_map.Panel("mean_accuracy", mean, 100 if share else 1, "viridis"),
        heat_map.Panel("seconds_per_step", time, 1 if slow else 1000, "cividis_r"),
    ]
    rules = SEPARATOR.join(table.grid.unique())
    caption = (
        f"Mean {measure} and time of a step by n and m, {rules}: ± 1 standard error over runs."
    )

    def draw() -> Figure:
        figure = heat_map.heat_maps(table, shown)
        figure.suptitle(title(study))
        return figure

    return Drawing("grid", caption, draw, table, runs)


def _scaling_family(runs: pd.DataFrame, by: str, fixed: str) -> pd.DataFrame | None:
    """Find the runs that differ only in n and m and the seed, with the longest line of values.

    Each value of `fixed` that has two values of `by` or more makes a line. Where n = m nothing is
    left out, so such a run belongs to every rule.
    """
    families = []
    for _, rows in runs.groupby("rest"):
        for rule in [rule for rule in rows.rule.unique() if rule != "all"]:
            family = rows[rows.rule.isin([rule, "all"])]
            length = family.groupby(fixed)[by].transform("nunique")
            if length.max() >= SCALING:
                families.append((length.max(), len(family), family[length > 1]))
    best = max(families, key=lambda one: one[:2], default=None)
    return None if best is None else best[-1]


def _rule_family(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Find the runs that differ only in the rule and the seed, with the most rules."""
    selected = runs[runs.n > runs.m]
    families = [rows for _, rows in selected.groupby(["n", "m", "rest"]) if rows.rule.nunique() > 1]
    return max(families, key=lambda rows: rows.rule.nunique(), default=None)
