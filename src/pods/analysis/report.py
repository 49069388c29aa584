"""Write one self-contained HTML page on a study: figures, comparison, runs, a few rollouts."""

import base64
from collections.abc import Iterator, Sequence
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
from pods.analysis.numbers.tables import Tables, readable, slow_runs, summary_title
from pods.runs.files import replace
from pods.system.text import command

RUN_COLUMNS = (
    *("series", "seed", "run", "complete", "steps", "train_seconds"),
    *("machine", "versions"),
    *("file", "unit", "first_step", "last_step", "end_seconds", "left_out"),  # of other trainers
)


def write_report(
    study: Study,
    tables: Tables,
    path: Path,
    first: Sequence[str] = (),
    found: Comparison | None = None,
    more: Sequence[specs.FigureSpec] = (),
) -> None:
    """Write the page of a study, its tables, its comparison if that was made, and more figures.

    The sentences `first` stand before all others.
    """
    pages = Environment(
        loader=PackageLoader("pods.analysis", "."), autoescape=True, undefined=StrictUndefined
    )
    with style.screen():
        figures = [_inline(spec) for spec in (*specs.figure_specs(study, tables), *more)]
    extra = study.runs[[c for c in study.runs if c not in tables.runs or c == "run"]]
    runs = tables.runs.merge(extra, on="run")
    columns = [name for name in (*RUN_COLUMNS, *OUTCOMES, *passes(runs)) if name in runs]
    page = pages.get_template("report.html.j2").render(
        study=study,
        lead=f"{len(study.runs)} runs, {study.budget} each, on {', '.join(study.machines)}",
        first=first,
        **_comparison(study, found),
        figures=figures,
        summary=readable(tables.summary, study),
        outcomes=summary_title(tables.summary, study),
        runs=runs[columns].map(_rounded),
        samples=list(_samples(study)),
        footer=f"Made by: {command()}",
    )
    replace(path, page)


def _comparison(study: Study, found: Comparison | None) -> dict[str, Any]:
    if study.runs[study.runs.complete].series.nunique() < 2:
        alone = "There is only one arm, so there is nothing to compare."
        return {"verdicts": [alone], "caveats": list(slow_runs(study)), "comparison": ""}
    found = found or compare(study)
    said = {name: of for name, of in findings(found).items() if name in ("verdicts", "caveats")}
    return {**said, "comparison": format_tables(found)}


def _inline(spec: specs.FigureSpec) -> dict[str, str]:
    content = BytesIO()
    spec.draw().savefig(content, format="svg", metadata=style.METADATA[".svg"])
    return {"caption": spec.caption, "data": base64.b64encode(content.getvalue()).decode()}


def _rounded(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def _samples(study: Study) -> Iterator[dict[str, Any]]:
    """Yield some rollouts of the last stored step of a run of each series; logs have none."""
    runs = study.runs.drop_duplicates("series") if "folder" in study.runs else study.runs[:0]
    for run in runs.itertuples():
        folder = Path(str(run.folder))
        steps = rollout_steps(folder)
        if steps:
            rows = examples(read_rollouts(folder, steps[-1]))
            yield {
                "title": f"{run.series}, {folder.name}, step {steps[-1]}",
                "question": rows.question.iloc[0],
                "rows": list(rows.itertuples()),
            }
