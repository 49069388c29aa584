"""One page of a study that needs nothing beside it: figures, comparison, cost, runs, rollouts."""

import base64
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from pods.analysis import figures, plots
from pods.analysis.load import Study
from pods.analysis.names import differing
from pods.analysis.outcomes import OUTCOMES
from pods.analysis.rollouts import examples, read_rollouts, rollout_steps
from pods.analysis.tables import Tables, readable
from pods.runs.attempts import environments
from pods.runs.files import replace
from pods.runs.store import RunStore

TEMPLATE = "report.html.j2"
LONGEST = 1200  # characters of a completion that are shown
RUN_COLUMNS = {
    "series": "series",
    "seed": "seed",
    "run": "run",
    "complete": "whole",
    "steps": "steps",
    "train_seconds": "train s",
    "wall_seconds": "wall s",
    **dict.fromkeys(OUTCOMES, ""),
}


def write_report(
    study: Study, made: Tables, words: Sequence[str], comparison: str, plan: str, path: Path
) -> None:
    """Write the page.

    Args:
        study: that it is of.
        made: its tables.
        words: what the comparison says, a paragraph each.
        comparison: its table for a screen.
        plan: the cost model in words.
        path: of the HTML file.
    """
    pages = Environment(loader=PackageLoader("pods.analysis", "."), autoescape=True,
                        undefined=StrictUndefined)  # fmt: skip
    about = figures.provenance(study)
    page = pages.get_template(TEMPLATE).render(
        study=study,
        lead=f"{len(study.runs)} runs, {study.budget} each, on {', '.join(study.machines)}",
        words=words,
        figures=[_inline(drawing) for drawing in figures.drawings(study, made)
                 if drawing.name != "seconds_per_step"],  # beside accuracy_vs_time anyway
        summary=readable(made.summary),
        comparison=comparison,
        plan=plan,
        differences=_differences(study),
        runs=_runs(study, made),
        environment=_environment(study),
        samples=list(_samples(study)),
        footer=f"Made by: {about['command']}",
    )  # fmt: skip
    replace(path, page)


def _inline(drawing: figures.Drawing) -> dict[str, str]:
    """A figure as an image that the page holds itself."""
    figure, drawn = drawing.draw(), BytesIO()
    figure.savefig(drawn, format="svg", metadata=plots.METADATA[".svg"])
    data = base64.b64encode(drawn.getvalue()).decode()
    return {"caption": drawing.caption, "data": data}


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers for a reader; the CSVs have them whole."""

    def shown(value: Any) -> str:
        if isinstance(value, float):
            return "" if pd.isna(value) else f"{value:.4g}"
        return "" if value is None else str(value)

    return table.map(shown)


def _runs(study: Study, made: Tables) -> pd.DataFrame:
    """A row a run: where it stands, and what it achieved."""
    extra = study.runs[[c for c in study.runs.columns if c not in made.runs.columns or c == "run"]]
    rows = made.runs.merge(extra, on="run")
    columns = {c: label or c.replace("_", " ") for c, label in RUN_COLUMNS.items() if c in rows}
    return _rounded(rows[list(columns)].rename(columns=columns))


def _stores(study: Study) -> Iterator[tuple[str, RunStore]]:
    """Series and folder of each run that has one here."""
    if "folder" in study.runs:
        for row in study.runs.itertuples():
            yield str(row.series), RunStore(Path(str(row.folder)))


def _differences(study: Study) -> pd.DataFrame | None:
    """The science keys in which the series differ, a column a series."""
    identities = {series: store.identity() for series, store in _stores(study)}
    if not identities:
        return None
    keys = [key for key in differing(list(identities.values())) if key != "seed"]
    columns = {series: [str(of.get(key)) for key in keys] for series, of in identities.items()}
    return pd.DataFrame({"key": keys, **columns})


def _environment(study: Study) -> pd.DataFrame:
    """What the runs ran on, and how many of them."""
    counts: dict[tuple[str, str], set[str]] = {}
    for _, store in _stores(study):
        for attempt in environments(store):
            facts = {k: v for k, v in attempt.items() if k not in ("packages", "gpus")}
            facts |= {"gpus": ", ".join(attempt.get("gpus", []))} | attempt.get("packages", {})
            for key, value in facts.items():
                if value:
                    counts.setdefault((key, str(value)), set()).add(store.folder.name)
    rows = [(key, value, len(runs)) for (key, value), runs in counts.items()]
    return pd.DataFrame(rows, columns=["what", "value", "runs"])


def _samples(study: Study) -> Iterator[dict[str, Any]]:
    """Some rollouts of the last step that was kept, of one run a series."""
    shown = set()
    for series, store in _stores(study):
        steps = rollout_steps(store.folder)
        if series in shown or not steps:
            continue
        shown.add(series)
        try:
            rows = examples(read_rollouts(store.folder, steps[-1]))
        except ValueError as error:  # a look at some rollouts is not worth the page
            yield {"title": f"{series}: {error}", "question": "", "rows": []}
            continue
        yield {
            "title": f"{series}, {store.folder.name}, step {steps[-1]}",
            "question": rows.question.iloc[0],
            "rows": [{"title": _verdict(row), "completion": str(row.completion)[:LONGEST]}
                     for row in rows.itertuples()],
        }  # fmt: skip


def _verdict(row: Any) -> str:
    """Grade and fate of a rollout."""
    fate = f"kept, advantage {row.advantage:+.2f}" if row.kept else "not kept"
    answer = "right" if row.correct else "wrong"
    form = "" if row.format else ", not in form"
    return f"{answer}{form}, reward {row.reward:g}, {row.length} tokens: {fate}"
