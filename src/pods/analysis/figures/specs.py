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

SELECTION = [metric for metric in STEP_METRICS if metric != "reward"]


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
    if tables.summary[study.per_step].notna().any():
        yield step_cost(study, tables)
    yield from _over_time(study, tables.curves)
    yield from _by_size(study, tables.runs)
    yield from _by_rule(study, tables.runs)


def _over_time(study: Study, curves: pd.DataFrame) -> Iterator[FigureSpec]:
    """Yield the figures of other metrics: of the answers and rewards, and of the selection."""
    metrics = curves.metric
    is_pass_at_k = metrics.str.startswith("pass@")  # those are for tables, and for `--metric`
    is_of_selection = metrics.isin(SELECTION)
    is_of_training = ~is_pass_at_k & ~is_of_selection & (metrics != "accuracy")
    training = curves[is_of_training]
    selection = curves[is_of_selection]

    if _has_a_slope(training):
        yield _metrics(study, "training", "Other metrics over the training.", training)
    if _has_a_slope(selection):
        caption = "The effect of selection: what is generated and what is kept."
        yield _metrics(study, "selection", caption, selection)


def _has_a_slope(curves: pd.DataFrame) -> bool:
    """Whether some series of a table of curves changes over time; a flat panel tells nothing."""
    return bool((curves.groupby(["metric", "series"])["mean"].nunique() > 1).any())


def _by_size(study: Study, runs: pd.DataFrame) -> Iterator[FigureSpec]:
    """Yield a figure of the outcomes by n, and by m, if the runs have enough values of it."""
    for by, fixed in (("n", "m"), ("m", "n")):
        family = drawing.scaling_family(runs, by, fixed)
        if family is not None:
            yield _outcomes(study, f"{by}_scaling", f"Outcomes by {by}", family, by, fixed)


def _by_rule(study: Study, runs: pd.DataFrame) -> Iterator[FigureSpec]:
    """Yield a figure of the outcomes by rule, at the n and m for which most rules were tried."""
    best = None
    most_rules = 1
    for _, family in runs[runs.n > runs.m].groupby(["n", "m", "settings"]):
        rules = family.rule.nunique()
        if rules > most_rules:
            best = family
            most_rules = rules
    if best is not None:
        title = f"Down-sampling rules at n = {best.n.iloc[0]}, m = {best.m.iloc[0]}"
        yield _outcomes(study, "rules", title, best, "rule", None)


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

    name = f"accuracy_vs_{study.x}"
    if study.x == "train_seconds":
        name = "accuracy_vs_time"
    over = style.x_title(study)
    caption = f"{_capital(label)} against {over}: {BAND}; thin lines are single runs."
    questions = study.evaluations.questions.max()
    if questions > 0:  # some logs of other trainers do not say it
        passes = study.evaluations.repeats.max()
        caption += f" Each value is of {passes} passes over {questions:g} questions."
    return FigureSpec(
        name=name,
        caption=f"{caption} {_budget(study)}.",
        draw=draw,
        table=curve,
        runs=study.evaluations,
    )


def difference(study: Study, table: pd.DataFrame) -> FigureSpec:
    """Specify the figure of differences to the baseline, of which there are some."""
    baseline = style.legend_name(table.baseline.iloc[0])
    scale, unit = style.percent(study)
    label = style.accuracy_label(study)
    points = "points" if unit else label

    def draw() -> Figure:
        figure, axes = _panel(study)
        title = drawing.differences(axes, table, study, scale)
        style.x_axis(axes, study, table[study.x].max())
        axes.set_ylabel(f"{points} above {baseline}")
        style.legend_inside(figure, axes, title)
        return figure

    all_paired = (table.design == "paired").all()
    paired = "paired over seeds" if all_paired else "not all paired"
    caption = (
        f"Each arm's {label} minus that of {baseline}, {paired}, with the 95 % t interval, which "
        f"holds for one time. {_budget(study)}."
    )
    return FigureSpec(
        name="difference", caption=caption, draw=draw, table=table, runs=study.evaluations
    )


def step_cost(study: Study, tables: Tables) -> FigureSpec:
    """Specify the figure of what a step of each arm costs, by phase."""
    summary = tables.summary[tables.summary[study.per_step].notna()]
    baseline = default_baseline(study)
    columns = ["series", study.per_step, *phase_columns(summary)]

    def draw() -> Figure:
        figure, axes = _panel(study)
        lines = "\n".join(map(style.legend_name, summary.series)).count("\n") + 1
        figure.set_figheight(1.6 + 0.45 * max(len(summary), lines / 2))
        drawing.step_cost(axes, summary, study, baseline)
        return figure

    caption = f"Mean {style.clock_word(study)} of a step"
    if baseline is not None:
        caption += f", and how many times that of {baseline} it is"
    return FigureSpec(
        name="step_cost",
        caption=f"{caption}. {_budget(study)}.",
        draw=draw,
        table=summary[columns],
        runs=tables.runs[["run", "seed", *columns]],
    )


def write(spec: FigureSpec, study: Study, folder: Path) -> Path:
    """Write a figure as PNG, PDF and SVG, its data as CSV, and its origin as JSON."""
    stem = folder / spec.name
    with style.screen():
        style.save(spec.draw(), [stem.with_suffix(suffix) for suffix in style.METADATA])
    write_csv(folder / f"{spec.name}.csv", spec.table, study)
    write_csv(folder / f"{spec.name}.runs.csv", spec.runs, study)
    about = {"figure": spec.name, "caption": spec.caption}
    write_json(folder / f"{spec.name}.json", about | provenance(study))
    return stem.with_suffix(".png")


def _marks(study: Study) -> list[str]:
    """Return what must stand in every figure of the study, since it is not as it should be."""
    marks = []
    if study.missing:
        marks.append(f"INCOMPLETE: {len(study.missing)} missing")
    if study.inconsistencies:
        marks.append("INCONSISTENT")
    return marks


def _budget(study: Study) -> str:
    text = f"{study.name}: {study.budget} per run, on {', '.join(study.machines)}"
    if study.clock != MEASURED:
        text += f"; {style.clock_word(study)} {study.clock}"
    return text


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _panel(study: Study) -> tuple[Figure, Axes]:
    """Make a figure with one panel, without a title unless the study has marks."""
    figure, axes = style.panel()
    marks = _marks(study)
    if marks:
        axes.set_title(", ".join([study.name, *marks]))
    return figure, axes


def _title(study: Study) -> str:
    return ", ".join([f"{study.name}: {study.budget} per run", *_marks(study)])


def _metrics(study: Study, name: str, caption: str, curves: pd.DataFrame) -> FigureSpec:
    """Specify a figure with a panel for each metric of a table of curves that is not flat."""
    metrics = [str(metric) for metric in curves.metric.unique()]
    shown = [metric for metric in metrics if _has_a_slope(curves[curves.metric == metric])]

    def draw() -> Figure:
        figure, panels = style.grid(len(shown))
        title = None
        for axes, metric in zip(panels, shown, strict=True):
            curve = curves[curves.metric == metric]
            title = drawing.against_time(axes, curve, study)
            style.x_axis(axes, study, curve[study.x].max())
            axes.set_ylabel(style.LABELS.get(metric, metric))
        style.legend_below(figure, panels[0], title, style.GRID_LEGEND)
        figure.suptitle(_title(study))
        return figure

    runs = study.evaluations
    if name == "selection":
        runs = study.steps.groupby(["series", "seed", "run"])[metrics].mean().reset_index()
    band = f"{_capital(BAND)}; thin lines are single runs."
    return FigureSpec(
        name=name,
        caption=f"{caption} {band} {_budget(study)}.",
        draw=draw,
        table=curves[curves.metric.isin(shown)],
        runs=runs,
    )


def _outcomes(
    study: Study, name: str, title: str, family: pd.DataFrame, by: str, line: str | None
) -> FigureSpec:
    """Specify a figure of finished runs: final and mean accuracy, and step time."""
    keys = [by]
    if line is not None:
        keys = [line, by]
        title += _lines_text(family[line], line)
    title += f", until {end_text(family, study.x)}"

    label = style.accuracy_label(study)
    scale, unit = style.percent(study)
    labels = {
        "final_accuracy": f"final {label}{unit}",
        "mean_accuracy": f"mean {label}{unit}",
        study.per_step: style.per_step_label(study),
    }
    shown = family.copy()
    for outcome in OUTCOMES:
        shown[outcome] = scale * family[outcome]

    def draw() -> Figure:
        figure, panels = style.grid(len(labels))
        for axes, (outcome, text) in zip(panels, labels.items(), strict=True):
            drawing.outcome_by(axes, study, shown, by, outcome, line)
            axes.set_ylabel(text)
        style.legend_below(figure, panels[0], BAND, style.GRID_LEGEND)
        figure.suptitle(f"{_title(study)}\n{title}.")
        return figure

    table = family.groupby(keys)[list(labels)].agg(["mean", "sem", "count"])
    table.columns = table.columns.map("_".join)
    return FigureSpec(
        name=name,
        caption=f"{title}: {BAND}. {_budget(study)}.",
        draw=draw,
        table=table.reset_index(),
        runs=family,
    )


def _lines_text(values: "pd.Series[int]", line: str) -> str:
    """Say of what the lines of a figure of outcomes are: one value, or several."""
    if values.nunique() == 1:
        return f" at {line} = {values.iloc[0]}"
    return f", a line per {line}"
