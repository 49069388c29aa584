"""The figures that a study supports: accuracy against time, differences, costs, n, m and rules.

A figure is specified with its data before it is drawn, so that the data can be written beside it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis.figures import drawing, style
from pods.analysis.figures.style import BAND
from pods.analysis.loading.arm_names import default_baseline
from pods.analysis.loading.study import MEASURED, Study
from pods.analysis.numbers.contrasts import differences
from pods.analysis.numbers.curves import STEP_METRICS, phase_columns
from pods.analysis.numbers.outcomes import OUTCOMES
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


def figure_specs(study: Study, tables: Tables) -> Iterator[FigureSpec]:
    """Yield every figure for which the study has the runs, accuracy against time first."""
    yield accuracy(study, tables)
    table = differences(study)
    if len(table):
        yield difference(study, table)
    if tables.summary.seconds_per_step.notna().any():
        yield step_cost(study, tables)

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
    label = style.accuracy_label(study)
    scale, unit = style.percent(study)

    def draw() -> Figure:
        figure, axes = _panel(study)
        title = drawing.against_time(axes, curve, study, scale)
        style.x_axis(axes, study, curve[study.x].max())
        axes.set_ylabel(label + unit)
        style.legend_inside(figure, axes, title)
        return figure

    over = "training time" if study.x == "train_seconds" else study.x
    passes, questions = study.evaluations.repeats.max(), study.evaluations.questions.max()
    sampled = f" Each value is of {passes} passes over {questions:g} questions."
    caption = f"{label[0].upper()}{label[1:]} against {over}: {BAND}; thin lines are single runs."
    return FigureSpec(
        f"accuracy_vs_{over.rpartition(' ')[2]}",
        f"{caption}{sampled if questions > 0 else ''} {_budget(study)}.",
        draw,
        curve,
        study.evaluations,
    )


def difference(study: Study, table: pd.DataFrame) -> FigureSpec:
    """Specify the figure of differences to the baseline, of which there are some."""
    baseline = style.legend_name(table.baseline.iloc[0])
    scale, unit = style.percent(study)
    points = "points" if unit else style.accuracy_label(study)

    def draw() -> Figure:
        figure, axes = _panel(study)
        title = drawing.differences(axes, table, study, scale)
        style.x_axis(axes, study, table[study.x].max())
        axes.set_ylabel(f"{points} above {baseline}")
        style.legend_inside(figure, axes, title)
        return figure

    paired = "paired over seeds" if (table.design == "paired").all() else "not all paired"
    return FigureSpec(
        "difference",
        f"Each arm's {style.accuracy_label(study)} minus that of {baseline}, {paired}, with the "
        f"95 % t interval, which holds for one time. {_budget(study)}.",
        draw,
        table,
        study.evaluations,
    )


def step_cost(study: Study, tables: Tables) -> FigureSpec:
    """Specify the figure of what a step of each arm costs, by phase."""
    summary = tables.summary[tables.summary.seconds_per_step.notna()]
    baseline = default_baseline(study)
    columns = ["series", "seconds_per_step", *phase_columns(summary)]

    def draw() -> Figure:
        figure, axes = _panel(study)
        lines = sum(style.legend_name(name).count("\n") + 1 for name in summary.series)
        figure.set_figheight(1.6 + 0.45 * max(len(summary), lines / 2))
        drawing.step_cost(axes, summary, baseline)
        return figure

    times = f", and how many times that of {baseline} it is" if baseline else ""
    return FigureSpec(
        "step_cost",
        f"Mean time of a step{times}. {_budget(study)}.",
        draw,
        summary[columns],
        tables.runs[["run", "seed", *columns]],
    )


def write(spec: FigureSpec, study: Study, folder: Path) -> Path:
    """Write a figure as PNG, PDF and SVG, its data as CSV, and its origin as JSON."""
    stem = folder / spec.name
    with style.screen():
        style.save(spec.draw(), [stem.with_suffix(suffix) for suffix in style.METADATA])
    write_csv(folder / f"{spec.name}.csv", spec.table, study)
    write_csv(folder / f"{spec.name}.runs.csv", spec.runs, study)
    about = {"figure": spec.name, "caption": spec.caption, **provenance(study)}
    write_json(folder / f"{spec.name}.json", about)
    return stem.with_suffix(".png")


def _marks(study: Study) -> list[str]:
    """Return what must stand in every figure of the study, since it is not as it should be."""
    marks = [f"INCOMPLETE: {len(study.missing)} missing"] if study.missing else []
    return marks + (["INCONSISTENT"] if study.inconsistencies else [])


def _budget(study: Study) -> str:
    where = f"on {', '.join(study.machines)}" if study.clock == MEASURED else f"time {study.clock}"
    return f"{study.name}: {study.budget} per run, {where}"


def _panel(study: Study) -> tuple[Figure, Axes]:
    """Make a figure with one panel, without a title unless the study has marks."""
    figure, axes = style.panel()
    marks = _marks(study)
    if marks:
        axes.set_title(", ".join([study.name, *marks]))
    return figure, axes


def _title(study: Study) -> str:
    return ", ".join([f"{study.name}: {study.budget} per run", *_marks(study)])


def _metrics(study: Study, name: str, what: str, curve: pd.DataFrame) -> FigureSpec:
    """Specify a figure with a panel for each metric of a curve table."""
    metrics = list(curve.metric.unique())

    def draw() -> Figure:
        figure, panels = style.grid(len(metrics))
        titles = []
        for axes, metric in zip(panels, metrics, strict=True):
            of_metric = curve[curve.metric == metric]
            titles.append(drawing.against_time(axes, of_metric, study))
            style.x_axis(axes, study, of_metric[study.x].max())
            axes.set_ylabel(style.LABELS.get(metric, metric))
        style.legend_below(figure, panels[0], titles[0])
        figure.suptitle(_title(study))
        return figure

    runs = study.evaluations
    if name == "selection":
        runs = study.steps.groupby(["series", "seed", "run"])[metrics].mean().reset_index()
    caption = f"{what} {BAND[0].upper()}{BAND[1:]}; thin lines are single runs. {_budget(study)}."
    return FigureSpec(name, caption, draw, curve, runs)


def _outcomes(
    study: Study, name: str, what: str, family: pd.DataFrame, by: str, line: str | None
) -> FigureSpec:
    """Specify a figure of finished runs: final and mean accuracy, and step time."""
    if line is not None:
        values = sorted(family[line].unique())
        what += f" at {line} = {values[0]}" if len(values) == 1 else f", a line per {line}"
    what += f", until {end_text(family, study.x)}"
    label, (scale, unit) = style.accuracy_label(study), style.percent(study)
    labels = {
        "final_accuracy": f"final {label}{unit}",
        "mean_accuracy": f"mean {label}{unit}",
        "seconds_per_step": "time per step (s)",
    }
    keys = [by] if line is None else [line, by]
    table = family.groupby(keys)[list(labels)].agg(["mean", "sem", "count"]).reset_index()
    table.columns = pd.Index(["_".join(filter(None, parts)) for parts in table.columns])

    def draw() -> Figure:
        shown = family.assign(**{outcome: scale * family[outcome] for outcome in OUTCOMES})
        figure, panels = style.grid(len(labels))
        for axes, (outcome, text) in zip(panels, labels.items(), strict=True):
            drawing.outcome_by(axes, study, shown, by, outcome, line)
            axes.set_ylabel(text)
        style.legend_below(figure, panels[0], BAND)
        figure.suptitle(f"{_title(study)}\n{what}.")
        return figure

    return FigureSpec(name, f"{what}: {BAND}. {_budget(study)}.", draw, table, family)
