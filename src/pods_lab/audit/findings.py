"""Compare the runs of an audit over each x that was recorded; write and say what was found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.compare.compare import DRAWS, Comparison, compare
from pods.analysis.compare.tables import findings, format_tables, tables_of
from pods.analysis.compare.text import caveats, ranking_verdict
from pods.analysis.figures import specs
from pods.analysis.loading.study import Study
from pods.analysis.numbers.tables import Tables, readable, tables
from pods.analysis.report import write_report
from pods.analysis.writing import write_csv, write_json
from pods_lab.audit.extras import best_checkpoints, decisions, remarks
from pods_lab.audit.foreign import X, axes, short

MANY_RUNS = 100  # of more, intervals of times to targets rest on fewer resamples
DRAWN = 20_000  # points of single runs that a figure shows


def write(
    study: Study, targets: Sequence[float] | None, about: dict[str, Any], folder: Path
) -> tuple[list[str], dict[str, Any]]:
    """Compare the methods over each x, write all of it, and return it for a screen and as JSON."""
    best = best_checkpoints(study)
    said = list(remarks(study, best))
    several = study.evaluations.series.nunique() > 1
    if not several:
        said.insert(0, f"{study.evaluations.series.iloc[0]} is the only method: nothing to compare")
    draws = DRAWS if len(study.complete) <= MANY_RUNS else DRAWS // 5
    verdicts: list[str] = []
    over: dict[str, Any] = {}
    parts: list[Any] = []
    for one in axes(replace(study, missing=short(study.missing))):
        found = compare(one, targets=targets, draws=draws) if several else None
        made, name = tables(one), X[one.x]
        _write_tables(one, made, found, folder / f"over_{name}" if parts else folder)
        parts.append((one, made, found, specs.accuracy(_thin(one), made)))
        if found:
            lines = [ranking_verdict(found), *decisions(found)]
            verdicts += [f"Over {name}: {line}" for line in lines if line]
            over[name] = {"decisions": lines, **findings(found)}
    content = {**about, "sentences": said, "best_checkpoints": best.to_dict("records"),
               "left_out": study.missing, "over": over}  # fmt: skip
    write_json(folder / "audit.json", content)
    write_csv(folder / "best_checkpoints.csv", best, study)
    write_csv(folder / "left_out.csv", pd.DataFrame({"left_out": study.missing}), study)
    first, made, found, figure = parts[0]
    specs.write(figure, first, folder)
    lead, more = [*verdicts, *said, *about["took"]], [part[-1] for part in parts[1:]]
    write_report(_thin(first), made, folder / "report.html", lead, found, more)
    table = format_tables(found) if found else str(readable(made.summary, first).to_string())
    weak = caveats(found) if found else [*first.missing, *first.inconsistencies, first.note]
    return [*verdicts, "", *said, "", *about["took"], "", table, "", *weak], content


def _write_tables(study: Study, made: Tables, found: Comparison | None, folder: Path) -> None:
    """Write the tables of one x as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = made.runs.drop(columns=["rule", "n", "m", "settings"])
    written = {"curves.": made.curves, "runs.": runs, "summary.": made.summary}
    compared = tables_of(found) if found else {}
    written |= {f"compare.{name}": table for name, table in compared.items()}
    for name, table in written.items():
        write_csv(folder / f"{name}csv", table, study)


def _thin(study: Study) -> Study:
    """Leave of each run the points that a figure can show."""
    rows = study.evaluations
    step = max(1, len(rows) // DRAWN)
    first = rows.groupby("run", observed=True).cumcount() % step == 0
    return replace(study, evaluations=rows[first])
