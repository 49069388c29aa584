"""Compare the runs of an audit over each x that was recorded; write and say what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from pods_lab.audit.foreign import Audited, X, axes, short
from pods_lab.audit.mapping import Mapping
from pods_lab.audit.own_output import MARK, is_mark

MANY_RUNS = 100  # of more, intervals of times to targets rest on fewer resamples
DRAWN = 20_000  # points of single runs that a figure shows


def check_folder(folder: Path) -> None:
    """Raise a ValueError if a folder has other things than an audit in it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out={folder}: must be a folder")
    if folder.is_dir() and any(folder.iterdir()) and not is_mark(folder / MARK):
        raise ValueError(f"out={folder}: must be a new folder or that of an audit; --out names one")


@dataclass(frozen=True)
class _Part:
    """What there is over one x."""

    study: Study
    tables: Tables
    comparison: Comparison | None  # None: there is one method
    figure: specs.FigureSpec

    @property
    def over(self) -> str:
        """What the methods are compared over."""
        return X[self.study.x]

    @property
    def decisions(self) -> list[str]:
        """The ranking, if there is one, and a sentence per contrast and outcome."""
        if self.comparison is None:
            return []
        lines = [ranking_verdict(self.comparison), *decisions(self.comparison)]
        return [line for line in lines if line]


def write(
    audited: Audited,
    mapping: Mapping,
    targets: Sequence[float] | None,
    about: dict[str, Any],
    folder: Path,
) -> tuple[list[str], dict[str, Any]]:
    """Compare the methods over each x, write all of it, and return it for a screen and as JSON."""
    study = replace(audited.study, note="")  # the notes are sentences of their own
    levels = _targets(targets, mapping, study)
    _mark(folder, about, study)
    best = best_checkpoints(study)
    said = [*audited.notes, *remarks(study, best)]
    names = study.evaluations.series.unique()
    if len(names) == 1:
        said.insert(0, f"{names[0]} is the only method: nothing to compare")

    parts = []
    for one in axes(replace(study, missing=short(study.missing))):
        found = _compare(one, mapping, levels) if len(names) > 1 else None
        made = tables(one)
        parts.append(_Part(one, made, found, specs.accuracy(_thin(one), made)))
    for place, part in enumerate(parts):
        _write_tables(part, folder / f"over_{part.over}" if place else folder)
    write_csv(folder / "best_checkpoints.csv", best, study)
    write_csv(folder / "left_out.csv", pd.DataFrame({"left_out": study.missing}), study)
    write_csv(folder / "audited_runs.csv", audited.table, study)

    first = parts[0]
    verdicts = [f"Over {part.over}: {line}" for part in parts for line in part.decisions]
    lead = [*verdicts, *said, *about["took"]]
    specs.write(first.figure, first.study, folder)
    more = [part.figure for part in parts[1:]]
    page = folder / "report.html"
    write_report(_thin(first.study), first.tables, page, lead, first.comparison, more)

    content = _content(audited, about, said, parts, best)
    write_json(folder / MARK, content)
    return [*verdicts, "", *said, "", *about["took"], "", *_table_and_caveats(first)], content


def _content(
    audited: Audited,
    about: dict[str, Any],
    said: Sequence[str],
    parts: Sequence[_Part],
    best: pd.DataFrame,
) -> dict[str, Any]:
    """Return what `--json` prints and the record of the audit holds."""
    return {
        **about,
        "sentences": list(said),
        "notes": audited.notes,
        "runs": _records(audited.table),
        "best_checkpoints": _records(best),
        "left_out": audited.study.missing,
        "over": {
            part.over: {"decisions": part.decisions, **findings(part.comparison)}
            for part in parts
            if part.comparison
        },
    }


def _table_and_caveats(part: _Part) -> list[str]:
    """Show the tables of the first x for a screen, and what weakens them."""
    if part.comparison:
        return [format_tables(part.comparison), "", *caveats(part.comparison)]
    summary = readable(part.tables.summary, part.study)
    return [str(summary.to_string()), "", *part.study.missing, *part.study.inconsistencies]


def _targets(targets: Sequence[float] | None, mapping: Mapping, study: Study) -> list[float] | None:
    """Return the targets that a user gave, in the unit of the scores, as shares.

    A ValueError says that a score of a unit of its own has none, or that one is in another unit.
    """
    if targets is None:
        return None
    if mapping.unit == "score":
        raise ValueError("target: must be of a score that is a share or a percent (unit: ...)")
    most = study.evaluations.accuracy.max()
    lowest = study.evaluations.accuracy.min()
    for target in targets:
        if mapping.unit == "percent" and target <= 1 < 100 * lowest:
            shown = f"{100 * lowest:g} to {100 * most:g} %"
            raise ValueError(f"target={target:g}: must be in percent, as the scores are ({shown})")
    scale = 0.01 if mapping.unit == "percent" else 1.0
    return [scale * target for target in targets]


def _compare(study: Study, mapping: Mapping, targets: Sequence[float] | None) -> Comparison:
    """Compare the methods; only shares and percents have times to targets and to a peak.

    99 % of a peak means nothing for a score whose zero is arbitrary.
    """
    if mapping.unit == "score":
        found = compare(study, targets=[], draws=1)
        return replace(found, speedups=found.speedups[:0])
    draws = DRAWS if len(study.complete) <= MANY_RUNS else DRAWS // 5
    return compare(study, targets=targets, draws=draws)


def _mark(folder: Path, about: dict[str, Any], study: Study) -> None:
    """Mark a folder as the output of an audit, before anything else is written into it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MARK, {**about, "left_out": study.missing, "over": {}})


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, which has no NaN."""
    columns = {str(name): table[name].tolist() for name in table}
    rows = []
    for index in range(len(table)):
        row = {name: cells[index] for name, cells in columns.items()}
        rows.append({name: None if pd.isna(cell) else cell for name, cell in row.items()})
    return rows


def _write_tables(part: _Part, folder: Path) -> None:
    """Write the tables of one x as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        "curves.": part.tables.curves,
        "runs.": part.tables.runs.drop(columns=["rule", "n", "m", "settings"]),
        "summary.": part.tables.summary,
    }
    if part.comparison:
        for name, table in tables_of(part.comparison).items():
            written[f"compare.{name}"] = table
    for name, table in written.items():
        write_csv(folder / f"{name}csv", table, part.study)


def _thin(study: Study) -> Study:
    """Leave of each run the points that a figure can show."""
    rows = study.evaluations
    step = max(1, len(rows) // DRAWN)
    first = rows.groupby("run", observed=True).cumcount() % step == 0
    return replace(study, evaluations=rows[first])
