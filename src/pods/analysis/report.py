"""Write one self-contained HTML page on a study: figures, comparison, cost, runs, rollouts."""

import base64
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from pods.analysis import figures, plots
from pods.analysis.comparison import ranking_text
from pods.analysis.comparison.compare import Comparison
from pods.analysis.comparison.formatting import format_tables
from pods.analysis.comparison.verdicts import caveats, headline, verdicts
from pods.analysis.noise import slow_runs
from pods.analysis.outcomes import OUTCOMES
from pods.analysis.rollouts import examples, last_completions, read_rollouts, rollout_steps
from pods.analysis.series_names import differing
from pods.analysis.study import Study
from pods.analysis.tables import Tables, readable
from pods.runs.attempts import environments
from pods.runs.files import replace
from pods.runs.store import RunStore

TEMPLATE = "report.html.j2"
WRONG = 5  # answers of the last evaluation that are shown
LONGEST = 1200  # characters of a completion that are shown
RUN_COLUMNS = ("series", "seed", "run", "complete", "steps", "train_seconds", "wall_seconds")


def write_report(
    study: Study, tables: Tables, comparison: Comparison | None, plan: str, path: Path
) -> None:
    """Write the page.

    Args:
        study: the study.
        tables: its tables.
        comparison: its arms compared; None: there is only one.
        plan: the cost model as text.
        path: the HTML file.
    """
    pages = Environment(
        loader=PackageLoader("pods.analysis", "."), autoescape=True, undefined=StrictUndefined
    )
    page = pages.get_template(TEMPLATE).render(
        study=study,
        lead=f"{len(study.runs)} runs, {study.budget} each, on {', '.join(study.machines)}",
        verdicts=_verdicts(comparison)
        if comparison
        else ["There is only one series, so there is nothing to compare."],
        caveats=list(caveats(comparison)) if comparison else list(slow_runs(study).values()),
        comparison=_comparison(comparison) if comparison else "",
        figures=[
            _inline(drawing)
            for drawing in figures.drawings(study, tables)
            if drawing.name != "seconds_per_step"  # a panel of accuracy_vs_time
        ],
        summary=readable(tables.summary),
        plan=plan,
        differences=_differences(study),
        runs=_runs(study, tables),
        environment=_environment(study),
        samples=list(_samples(study)),
        answers=list(_answers(study)),
        footer=f"Made by: {figures.provenance(study)['command']}",
    )
    replace(path, page)


def _verdicts(comparison: Comparison) -> list[str]:
    """Say in a sentence what is settled, or which of many arms is best; then per contrast."""
    ranking = comparison.ranking
    first = (
        headline(comparison) if ranking is None else ranking_text.verdict(ranking, comparison.study)
    )
    return [first, *verdicts(comparison)]


def _comparison(comparison: Comparison) -> str:
    """Return the tables of a comparison, before them the ranking of many arms."""
    ranking, tables = comparison.ranking, format_tables(comparison, verbose=True)
    if ranking is None:
        return tables
    return f"{ranking_text.format_ranking(ranking, comparison.study)}\n\n{tables}"


def _inline(drawing: figures.Drawing) -> dict[str, str]:
    """Draw a figure as an image that the page itself contains."""
    content = BytesIO()
    drawing.draw().savefig(content, format="svg", metadata=plots.METADATA[".svg"])
    return {"caption": drawing.caption, "data": base64.b64encode(content.getvalue()).decode()}


def _runs(study: Study, tables: Tables) -> pd.DataFrame:
    """Make one row per run: its state and its outcomes, rounded."""
    extra = study.runs[[c for c in study.runs if c not in tables.runs or c == "run"]]
    rows = tables.runs.merge(extra, on="run")
    columns = [name for name in (*RUN_COLUMNS, *OUTCOMES) if name in rows]
    return rows[columns].rename(columns=lambda name: name.replace("_", " ")).map(_rounded)


def _rounded(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def _stores(study: Study) -> Iterator[tuple[str, RunStore]]:
    """Yield series and folder of each run that is not imported."""
    if "folder" in study.runs:
        for row in study.runs.itertuples():
            yield str(row.series), RunStore(Path(str(row.folder)))


def _differences(study: Study) -> pd.DataFrame | None:
    """List the config keys in which the series differ, one column per series."""
    identities = {series: store.identity() for series, store in _stores(study)}
    if not identities:
        return None
    keys = [key for key in differing(list(identities.values())) if key != "seed"]
    columns = {series: [str(of.get(key)) for key in keys] for series, of in identities.items()}
    return pd.DataFrame({"key": keys, **columns})


def _environment(study: Study) -> pd.DataFrame:
    """Count the runs by what they ran on."""
    runs: dict[tuple[str, str], set[str]] = {}
    for _, store in _stores(study):
        for attempt in environments(store):
            facts = {k: v for k, v in attempt.items() if k not in ("packages", "gpus")}
            facts |= {"gpus": ", ".join(attempt.get("gpus", []))} | attempt.get("packages", {})
            for key, value in facts.items():
                if value:
                    runs.setdefault((key, str(value)), set()).add(store.folder.name)
    rows = [(key, value, len(names)) for (key, value), names in runs.items()]
    return pd.DataFrame(rows, columns=["what", "value", "runs"])


def _samples(study: Study) -> Iterator[dict[str, Any]]:
    """Yield some rollouts of the last stored step of one run per series."""
    shown = set()
    for series, store in _stores(study):
        steps = rollout_steps(store.folder)
        if series in shown or not steps:
            continue
        shown.add(series)
        try:
            rows = examples(read_rollouts(store.folder, steps[-1]))
        except ValueError as error:  # damaged rollouts must not prevent the page
            yield {"title": f"{series}: {error}", "question": "", "rows": []}
            continue
        yield {
            "title": f"{series}, {store.folder.name}, step {steps[-1]}",
            "question": rows.question.iloc[0],
            "rows": [
                {"title": _rollout_title(row), "completion": str(row.completion)[:LONGEST]}
                for row in rows.itertuples()
            ],
        }


def _answers(study: Study) -> Iterator[dict[str, Any]]:
    """Yield some wrong answers, and a right one, of the last evaluation of one run per series."""
    shown = set()
    for series, store in _stores(study):
        try:
            rows = None if series in shown else last_completions(store.folder)
        except ValueError as error:  # damaged completions must not prevent the page
            yield {"title": f"{series}: {error}", "question": "", "rows": []}
            continue
        if rows is None:
            continue
        shown.add(series)
        some = pd.concat([rows[~rows.correct].head(WRONG), rows[rows.correct].head(1)])
        wrong = int((~rows.correct).sum())
        yield {
            "title": f"{series}, {store.folder.name}: {wrong} of {len(rows)} wrong",
            "question": "",
            "rows": [
                {
                    "title": f"{row.verdict}; right: {row.gold}",
                    "completion": f"{row.asked}\n\n{row.completion}"[:LONGEST],
                }
                for row in some.itertuples()
            ],
        }


def _rollout_title(row: Any) -> str:
    kept = f"kept, advantage {row.advantage:+.2f}" if row.kept else "not kept"
    answer = "correct" if row.correct else "wrong"
    form = "" if row.format else ", not in the requested format"
    return f"{answer}{form}, reward {row.reward:g}, {row.length} tokens: {kept}"
