"""The figures that a study supports: accuracy against time, where it goes, n, m, rules."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pods.analysis import plots
from pods.analysis.curves import OF_STEPS, phase_columns
from pods.analysis.load import Study
from pods.analysis.names import SEPARATOR
from pods.analysis.tables import Tables, at
from pods.runs.environment import command
from pods.runs.files import replace

LEGEND = "mean over n runs ± 1 stderr; thin: single runs"
CROWD = 6  # series whose legend has room beside their curves
SCALING = 3  # values of n or m that a scaling figure needs
Maker = Callable[[], Figure]


@dataclass(frozen=True)
class Drawing:
    """A figure and what lies beside it."""

    name: str
    caption: str
    draw: Maker
    table: pd.DataFrame
    """What is drawn."""
    runs: pd.DataFrame
    """The same run by run."""
    detail: bool = False
    """Not what the study is about: drawn when asked for."""
    over: Study | None = None
    """Another study that is in it."""


def drawings(study: Study, tables: Tables) -> Iterator[Drawing]:
    """Every figure that the study has the runs for; its holes and mixtures mark them."""
    curve = tables.curves
    accuracy = curve[curve.metric == "accuracy"]
    about = f"{study.budget} a run; mean over runs ± 1 standard error, thin lines: single runs"
    yield Drawing(
        "accuracy_vs_time", f"Accuracy against training time, and the time of a step. {about}.",
        partial(_accuracy, study, accuracy, tables.summary), accuracy, study.evaluations,
    )  # fmt: skip
    phases = phase_columns(tables.summary)
    yield Drawing(
        "seconds_per_step", "Seconds per step by phase, mean over all steps of all runs.",
        partial(_phases, study, tables.summary),
        tables.summary[["series", "n", "seconds_per_step", *phases]], tables.runs, detail=True,
    )  # fmt: skip
    others = curve[curve.metric.isin(["lenient", "format", "both", "length", "reward"])]
    yield Drawing(
        "training", f"What else changes while accuracy does. {about}.",
        partial(_others, study, others), others, study.evaluations, detail=True,
    )  # fmt: skip
    why = curve[curve.metric.isin([metric for metric in OF_STEPS if metric != "reward"])]
    if len(why):
        of_runs = study.steps.groupby(["series", "seed", "run"])[list(why.metric.unique())]
        yield Drawing(
            "selection", f"What selection does: what it spends and what it keeps. {about}.",
            partial(_others, study, why), why, of_runs.mean().reset_index(), detail=True,
        )  # fmt: skip
    for by, fixed in (("n", "m"), ("m", "n")):
        family = _family(tables.runs, by, fixed)
        if family is not None:
            where = f"{fixed} = {family[fixed].iloc[0]}"
            yield _compared(study, f"{by}_scaling", f"Outcomes by {by} at {where}.", family, by)
    family = _rules(tables.runs)
    if family is not None:
        where = f"n = {family.n.iloc[0]}, m = {family.m.iloc[0]}"
        yield _compared(study, "rules", f"Down-sampling rules at {where}.", family, "rule")


def write(drawing: Drawing, study: Study, folder: Path) -> Path:
    """Write a figure as PNG, PDF and SVG, its CSVs, and JSON that says what it is made of."""
    stem = folder / drawing.name
    plots.save(drawing.draw(), stem)
    for suffix, table in ((".csv", drawing.table), (".runs.csv", drawing.runs)):
        replace(folder / f"{drawing.name}{suffix}", table.to_csv(index=False, float_format="%.6g"))
    about = {"figure": drawing.name, "caption": drawing.caption, **provenance(study)}
    if drawing.over is not None:
        about["overlay"] = provenance(drawing.over)
    replace(stem.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False))
    return stem.with_suffix(".png")


def provenance(study: Study) -> dict[str, Any]:
    """What the numbers come from: command, runs with hash and versions, what was left out."""
    columns = [c for c in study.runs.columns if c not in ("folder", "wall_seconds")]
    runs = study.runs[columns].astype(object).where(study.runs[columns].notna(), None)
    return {
        "study": study.name,
        "command": command(),
        "budget": study.budget,
        "machines": study.machines,
        "note": study.note,
        "missing": study.holes,
        "mixed": study.mixed,
        "runs": runs.to_dict("records"),
    }


def title(study: Study) -> str:
    """What stands over a figure; what is missing or mixed shows there."""
    marks = [f"INCOMPLETE: {len(study.holes)} missing"] if study.holes else []
    marks += ["MIXED"] if study.mixed else []
    return SEPARATOR.join([f"{study.name}: {study.budget} a run", *marks])


def _accuracy(study: Study, curve: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    many = len(summary) > CROWD
    figure, (left, right) = plots.panels(2, 11, 5.2 if many else 4.2, widths=(1.7, 1))
    unit, _ = plots.time_unit(curve.train_seconds.max())
    plots.against_time(left, curve, study, unit)
    plots.time_axis(left, curve.train_seconds.max(), study.machines)
    rows = study.evaluations
    left.set_ylabel(
        f"accuracy (mean of {rows.repeats.max()} passes over {rows.questions.max()} questions)"
    )
    if many:
        _legend_below(figure, left)
    else:
        left.legend(title=LEGEND, loc="lower right")
    plots.seconds_per_step(right, summary)
    figure.suptitle(title(study))
    return figure


def _phases(study: Study, summary: pd.DataFrame) -> Figure:
    figure, [axes] = plots.panels(1, 6.5, 1.4 + 0.4 * len(summary))
    plots.seconds_per_step(axes, summary)
    figure.suptitle(title(study))
    return figure


def _others(study: Study, curve: pd.DataFrame) -> Figure:
    metrics = list(curve.metric.unique())
    figure, panels = plots.panels(len(metrics), 3.4 * len(metrics), 3.6)
    unit, _ = plots.time_unit(curve.train_seconds.max())
    for axes, metric in zip(panels, metrics, strict=True):
        plots.against_time(axes, curve[curve.metric == metric], study, unit)
        plots.time_axis(axes, curve.train_seconds.max(), study.machines)
        axes.set_ylabel(plots.LABELS[metric])
    _legend_below(figure, panels[0])
    figure.suptitle(title(study))
    return figure


def _legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, where it hides no curve."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  title=LEGEND)  # fmt: skip


def _compared(study: Study, name: str, caption: str, family: pd.DataFrame, by: str) -> Drawing:
    """A figure of finished runs side by side, and of the time that their steps take."""
    labels = {"mean_accuracy": "mean accuracy until then",
              "final_accuracy": f"accuracy at {at(family.seconds.max())}",
              "seconds_per_step": "seconds per step"}  # fmt: skip
    outcomes = ["final_accuracy", "mean_accuracy", "seconds_per_step"]
    table = family.groupby(by)[outcomes].agg(["mean", "sem", "count"]).reset_index()
    table.columns = pd.Index(["_".join(filter(None, parts)) for parts in table.columns])

    def draw() -> Figure:
        figure, panels = plots.panels(3, 11, 3.6)
        for axes, outcome in zip(panels, outcomes, strict=True):
            plots.outcome_by(axes, family, by, outcome, labels[outcome])
        panels[0].legend(fontsize=7)
        figure.suptitle(f"{title(study)}\n{caption}")
        return figure

    return Drawing(name, caption, draw, table, family)


def _family(runs: pd.DataFrame, by: str, fixed: str) -> pd.DataFrame | None:
    """The runs that differ only in n (or only in m) and the seed, most values first.

    Where n = m nothing is left out, so that such a run belongs to every rule.
    """
    found = []
    for (_, _), rows in runs.groupby([fixed, "rest"]):
        rules = [rule for rule in rows.rule.unique() if rule != "all"]
        found += [rows[rows.rule.isin([rule, "all"])] for rule in rules]
    return _largest(found, by, SCALING)


def _rules(runs: pd.DataFrame) -> pd.DataFrame | None:
    """The runs that differ only in the rule and the seed."""
    chosen = runs[runs.n > runs.m]
    return _largest([rows for _, rows in chosen.groupby(["n", "m", "rest"])], "rule", 2)


def _largest(found: list[pd.DataFrame], by: str, least: int) -> pd.DataFrame | None:
    best = max(found, key=lambda rows: rows[by].nunique(), default=None)
    return best if best is not None and best[by].nunique() >= least else None
