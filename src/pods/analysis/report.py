"""Write one self-contained HTML page on a study: figures, comparison, runs, a few rollouts."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from pods.analysis.compare.compare import Comparison, compare
from pods.analysis.compare.tables import findings, format_tables
from pods.analysis.figures import specs, style
from pods.analysis.loading.rollouts import examples, read_rollouts, rollout_steps
from pods.analysis.loading.study import Study, passes
from pods.analysis.numbers.outcomes import OUTCOMES
from pods.analysis.numbers.span import span_lines
from pods.analysis.numbers.tables import Tables, readable, slow_runs, summary_title
from pods.runs.files import replace
from pods.system.text import command, short

RUN_COLUMNS = [
    "series",
    "seed",
    "run",
    "complete",
    "steps",
    "train_seconds",
    "machine",
    "versions",
]
FOREIGN_COLUMNS = ["file", "unit", "first_step", "last_step", "end_seconds", "left_out"]
"""What else runs of other trainers have."""


def write_report(
    study: Study,
    tables: Tables,
    path: Path,
    sentences: Sequence[str] = (),
    comparison: Comparison | None = None,
    further: Sequence[specs.FigureSpec] = (),
) -> None:
    """Write the page of a study.

    Args:
        study: the runs.
        tables: their tables.
        path: the file to write.
        sentences: what stands before everything else.
        comparison: of its arms; made here if it is None.
        further: figures behind those of the study.
    """
    pages = Environment(
        loader=PackageLoader("pods.analysis", "."), autoescape=True, undefined=StrictUndefined
    )
    drawn = list(specs.figure_specs(study, tables))
    drawn += further
    with style.screen():
        figures = [_inline(spec) for spec in drawn]
    page = pages.get_template("report.html.j2").render(
        study=study,
        faults=short(study.missing) + short(study.inconsistencies),
        lead=f"{len(study.runs)} runs, {study.budget} each, on {', '.join(study.machines)}",
        sentences=sentences,
        compared=_compared(study, comparison),
        figures=figures,
        summary=readable(tables.summary, study),
        outcomes=summary_title(tables.summary, study),
        runs=_run_table(study, tables),
        samples=list(_samples(study)),
        footer=f"Made by: {command()}",
    )
    replace(path, page)


@dataclass(frozen=True)
class _Compared:
    """What the page says of the comparison."""

    verdicts: Sequence[str]
    caveats: Sequence[str]
    tables: str


def _compared(study: Study, comparison: Comparison | None) -> _Compared:
    complete = study.runs[study.runs.complete]
    if complete.series.nunique() < 2:
        alone = "There is only one arm, so there is nothing to compare."
        caveats = [*span_lines(study), *slow_runs(study)]
        return _Compared([alone], caveats, tables="")
    if comparison is None:
        comparison = compare(study)
    text = findings(comparison)
    return _Compared(short(text["verdicts"]), short(text["caveats"]), format_tables(comparison))


def _inline(spec: specs.FigureSpec) -> dict[str, str]:
    content = BytesIO()
    spec.draw().savefig(content, format="svg", metadata=style.METADATA[".svg"])
    return {"caption": spec.caption, "data": base64.b64encode(content.getvalue()).decode()}


def _run_table(study: Study, tables: Tables) -> pd.DataFrame:
    """Return what the page shows of each run, as texts."""
    both = [name for name in tables.runs if name in study.runs and name != "run"]
    runs = tables.runs.merge(study.runs.drop(columns=both), on="run")
    shown = RUN_COLUMNS + FOREIGN_COLUMNS + list(OUTCOMES) + passes(runs)
    return runs[[name for name in shown if name in runs]].map(_rounded)


def _rounded(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def _samples(study: Study) -> Iterator[dict[str, Any]]:
    """Yield some rollouts of the last stored step of a run of each series; logs have none."""
    if "folder" not in study.runs:
        return
    runs = study.runs.drop_duplicates("series")
    for series, name in zip(runs.series, runs.folder, strict=True):
        folder = Path(name)
        steps = rollout_steps(folder)
        if not steps:
            continue
        rows = examples(read_rollouts(folder, steps[-1]))
        yield {
            "title": f"{series}, {folder.name}, step {steps[-1]}",
            "question": rows.question.iloc[0],
            "rows": list(rows.itertuples()),
        }
