"""The figures that a study supports: accuracy against time, other metrics, n, m and rules.

A figure is specified with its data before it is drawn, so that the data can be written beside it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pods.analysis.figures import drawing, style
from pods.analysis.figures.style import BAND
from pods.analysis.loading.study import MEASURED, Study
from pods.analysis.numbers.contrasts import differences
from pods.analysis.numbers.curves import STEP_METRICS
from pods.analysis.numbers.outcomes import measure
from pods.analysis.numbers.tables import Tables, end_text
from pods.analysis.writing import provenance, write_csv, write_json


@dataclass(frozen=True)
class FigureSpec:
    """A figure and the data that are written beside it."""

    name: str
    caption: str
    draw: Callable[[], Figure]
    table: pd.DataFrame  # the data that are drawn
    runs: pd.DataFrame  # the same data run by run
    detail: bool = False
    """The figure is drawn only on request, since it is not what the study is about."""
    differences: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Differences to the baseline, if they are drawn."""


def figure_specs(study: Study, tables: Tables) -> Iterator[FigureSpec]:
    """Yield every figure for which the study has the runs."""
    yield accuracy(study, tables)
    metric = tables.curves.metric
    of_k, of_selection = metric.str.startswith("pass@"), metric.isin({*STEP_METRICS} - {"reward"})
    others = ~(of_k | of_selection | (metric == "accuracy"))
    for name, shown, what in (
        ("training", others, "Other metrics over the training."),
        ("pass_at_k", of_k, "How likely it is that one of k answers to a question is right."),
        ("selection", of_selection, "The effect of selection: what is generated and what is kept."),
    ):
        if shown.any():
            yield _metrics(study, name, what, tables.curves[shown])
    for by, fixed in (("n", "m"), ("m", "n")):
        family = drawing.scaling_family(tables.runs, by, fixed)
        if family is not None:
            yield _outcomes(study, f"{by}_scaling", f"Outcomes by {by}", family, by, fixed)
    selected = tables.runs[tables.runs.n > tables.runs.m].groupby(["n", "m", "settings"])
    families = [rows for _, rows in selected if rows.rule.nunique() > 1]
    if families:
        family = max(families, key=lambda rows: rows.rule.nunique())
        where = f"n = {family.n.iloc[0]}, m = {family.m.iloc[0]}"
        yield _outcomes(study, "rules", f"Down-sampling rules at {where}", family, "rule", None)


def accuracy(study: Study, tables: Tables) -> FigureSpec:
    """Specify the figure of accuracy against time (or the chosen metric and x)."""
    curve = tables.curves[tables.curves.metric == "accuracy"]
    to_baseline = differences(study)
    label = measure(study)
    below = "; below, differences to the baseline, 95 % t interval"
    over = "training time" if study.x == "train_seconds" else study.x
    return FigureSpec(
        f"accuracy_vs_{over.rpartition(' ')[2]}",
        f"{label[0].upper()}{label[1:]} against {over}, and the time of a step. "
        f"{_budget(study)}; {BAND}{below if len(to_baseline) else ''}.",
        partial(_accuracy_figure, study, curve, tables.summary, to_baseline),
        curve,
        study.evaluations,
        differences=to_baseline,
    )


def write(spec: FigureSpec, study: Study, folder: Path) -> Path:
    """Write a figure as PNG, PDF and SVG, its data as CSV, and its origin as JSON."""
    stem = folder / spec.name
    with style.screen():
        style.save(spec.draw(), [stem.with_suffix(suffix) for suffix in style.METADATA])
    write_csv(folder / f"{spec.name}.csv", spec.table, study)
    write_csv(folder / f"{spec.name}.runs.csv", spec.runs, study)
    if len(spec.differences):
        write_csv(folder / f"{spec.name}.differences.csv", spec.differences, study)
    about = {"figure": spec.name, "caption": spec.caption, **provenance(study)}
    write_json(folder / f"{spec.name}.json", about)
    return stem.with_suffix(".png")


def _title(study: Study) -> str:
    marks = [f"INCOMPLETE: {len(study.missing)} missing"] if study.missing else []
    marks += ["INCONSISTENT"] if study.inconsistencies else []
    return ", ".join([f"{study.name}: {_budget(study)}", *marks])


def _budget(study: Study) -> str:
    modelled = "" if study.clock == MEASURED else f", time {study.clock}"
    return f"{study.budget} per run{modelled}"


def _accuracy_figure(
    study: Study, curve: pd.DataFrame, summary: pd.DataFrame, to_baseline: pd.DataFrame
) -> Figure:
    """Draw the curves, the differences to the baseline below, and the time per step beside."""
    height = max(6.2 if len(to_baseline) else 4.6, 0.6 * len(summary))  # a name may have two lines
    figure = Figure(figsize=(11, height), layout="constrained")
    heights = {"curves": 0.65} | ({"differences": 0.35} if len(to_baseline) else {})
    rows: Any = [[name, "time"] for name in heights]
    panels = figure.subplot_mosaic(rows, width_ratios=(1.7, 1), height_ratios=[*heights.values()])
    drawing.against_time(panels["curves"], curve, study)
    passes, questions = study.evaluations.repeats.max(), study.evaluations.questions.max()
    sampled = f"\n({passes} passes over {questions:g} questions)" if questions > 0 else ""
    panels["curves"].set_ylabel(measure(study) + sampled)
    lowest = panels["curves"]
    if len(to_baseline):
        lowest = panels["differences"]
        lowest.sharex(panels["curves"])
        panels["curves"].tick_params(labelbottom=False)
        drawing.differences(lowest, to_baseline, study)
    style.x_axis(lowest, study, curve[study.x].max())
    drawing.seconds_per_step(panels["time"], summary)
    style.legend_below(figure, panels["curves"])
    figure.suptitle(_title(study))
    return figure


def _metrics(study: Study, name: str, what: str, curve: pd.DataFrame) -> FigureSpec:
    """Specify a figure with a panel for each metric of a curve table."""
    metrics = list(curve.metric.unique())

    def draw() -> Figure:
        figure, panels = style.panels(len(metrics), 3.4 * len(metrics), 4)
        for axes, metric in zip(panels, metrics, strict=True):
            of_metric = curve[curve.metric == metric]
            drawing.against_time(axes, of_metric, study)
            style.x_axis(axes, study, of_metric[study.x].max())
            axes.set_ylabel(style.LABELS.get(metric, metric))
        style.legend_below(figure, panels[0])
        figure.suptitle(_title(study))
        return figure

    runs = study.evaluations
    if name == "selection":
        runs = study.steps.groupby(["series", "seed", "run"])[metrics].mean().reset_index()
    return FigureSpec(name, f"{what} {_budget(study)}; {BAND}.", draw, curve, runs, detail=True)


def _outcomes(
    study: Study, name: str, what: str, family: pd.DataFrame, by: str, line: str | None
) -> FigureSpec:
    """Specify a figure of finished runs: final and mean accuracy, and step time."""
    if line is not None:
        values = sorted(family[line].unique())
        what += f" at {line} = {values[0]}" if len(values) == 1 else f", a line per {line}"
    labels = {
        "final_accuracy": f"{measure(study)} at {end_text(family, study.x)}",
        "mean_accuracy": f"mean {measure(study)} until then",
        "seconds_per_step": "seconds per step",
    }
    keys = [by] if line is None else [line, by]
    table = family.groupby(keys)[list(labels)].agg(["mean", "sem", "count"]).reset_index()
    table.columns = pd.Index(["_".join(filter(None, parts)) for parts in table.columns])

    def draw() -> Figure:
        figure, panels = style.panels(len(labels), 11, 4)
        for axes, (outcome, label) in zip(panels, labels.items(), strict=True):
            drawing.outcome_by(axes, family, by, outcome, line)
            axes.set_ylabel(label)
        style.legend_below(figure, panels[0], title=None)
        figure.suptitle(f"{_title(study)}\n{what}.")
        return figure

    return FigureSpec(name, f"{what}.", draw, table, family)
