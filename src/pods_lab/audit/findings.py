"""Compare the runs of an audit over each x that was recorded; write and say what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.compare.compare import DRAWS, Comparison, compare
from pods.analysis.compare.planned import planned_lines
from pods.analysis.compare.tables import findings, format_tables, tables_of
from pods.analysis.compare.text import caveats, ranking_verdict
from pods.analysis.figures import specs
from pods.analysis.loading.study import Study
from pods.analysis.numbers.planned import judgements_of
from pods.analysis.numbers.tables import Tables, readable, tables
from pods.analysis.report import write_report
from pods.analysis.writing import write_csv, write_json
from pods.runs.plan import Registered
from pods_lab.audit.axes import X, axes, short
from pods_lab.audit.extras import best_checkpoints, decisions, remarks
from pods_lab.audit.foreign import Audited
from pods_lab.audit.mapping import Mapping
from pods_lab.audit.own_output import MARK, is_mark

MANY_RUNS = 100  # of more, intervals of times to targets rest on fewer resamples
DRAWN = 20_000  # points of single runs that a figure shows


def check_folder(folder: Path) -> None:
    """Raise a ValueError if a folder has other things than an audit in it."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"out={folder}: must be a folder")
    if any(folder.iterdir()) and not is_mark(folder / MARK):
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
        lines = list(decisions(self.comparison))
        ranking = ranking_verdict(self.comparison)
        return [ranking, *lines] if ranking else lines


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
    sentences = audited.notes + list(remarks(study, best))
    methods = study.evaluations.series.unique()
    if len(methods) == 1:
        sentences.insert(0, f"{methods[0]} is the only method: nothing to compare")

    parts = []
    for over in axes(replace(study, missing=short(study.missing))):
        parts.append(_part(over, mapping, levels))
    first = parts[0]
    _write_tables(first, folder)
    for part in parts[1:]:
        _write_tables(part, folder / f"over_{part.over}")
    write_csv(folder / "best_checkpoints.csv", best, study)
    write_csv(folder / "left_out.csv", pd.DataFrame({"left_out": study.missing}), study)
    write_csv(folder / "audited_runs.csv", audited.table, study)

    verdicts = [f"Take care: {warning}" for warning in audited.warnings]
    for part in parts:
        verdicts += [f"Over {part.over}: {line}" for line in part.decisions]
    specs.write(first.figure, first.study, folder)
    later_figures = [part.figure for part in parts[1:]]
    lead = about["planned"] + verdicts + sentences + about["took"]
    page = folder / "report.html"
    write_report(_thin(first.study), first.tables, page, lead, first.comparison, later_figures)

    content = _content(audited, about, sentences, parts, best)
    write_json(folder / MARK, content)
    lines = [*about["planned"], "", *verdicts, "", *sentences, "", *about["took"], ""]
    lines += _table_and_caveats(first)
    return lines, content


def planned_of(study: Study, plan: Registered | None) -> list[str]:
    """Say what a plan asked of the runs and what came out, or that there is none.

    A ValueError says that the runs do not have the x of the plan.
    """
    if plan is None:
        return planned_lines(study, [])
    over = {one.x: one for one in axes(study)}
    x = plan.plan.x
    if x not in over:
        raise ValueError(f"plan.x={x}: must be one that the runs have: {', '.join(over)}")
    seeds = sorted(set(study.runs.seed))
    asked = replace(over[x], x="train_seconds", plans=[plan], seeds=seeds)
    return planned_lines(asked, judgements_of(asked))


def _part(study: Study, mapping: Mapping, targets: Sequence[float] | None) -> _Part:
    """Make the tables and the figure over one x, and compare the methods if there are several."""
    comparison = None
    if study.evaluations.series.nunique() > 1:
        comparison = _compare(study, mapping, targets)
    study_tables = tables(study)
    figure = specs.accuracy(_thin(study), study_tables)
    return _Part(study, study_tables, comparison, figure)


def _content(
    audited: Audited,
    about: dict[str, Any],
    sentences: Sequence[str],
    parts: Sequence[_Part],
    best: pd.DataFrame,
) -> dict[str, Any]:
    """Return what `--json` prints and the record of the audit holds."""
    over = {}
    for part in parts:
        if part.comparison:
            over[part.over] = {"decisions": part.decisions} | findings(part.comparison)
    return about | {
        "sentences": list(sentences),
        "notes": audited.notes,
        "runs": _records(audited.table),
        "best_checkpoints": _records(best),
        "left_out": audited.study.missing,
        "over": over,
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
    if mapping.unit == "share":
        return list(targets)

    lowest = 100 * study.evaluations.accuracy.min()
    highest = 100 * study.evaluations.accuracy.max()
    for target in targets:
        if target <= 1 < lowest:
            shown = f"{lowest:g} to {highest:g} %"
            raise ValueError(f"target={target:g}: must be in percent, as the scores are ({shown})")
    return [0.01 * target for target in targets]


def _compare(study: Study, mapping: Mapping, targets: Sequence[float] | None) -> Comparison:
    """Compare the methods; only shares and percents have times to targets and to a peak.

    99 % of a peak means nothing for a score whose zero is arbitrary.
    """
    if mapping.unit == "score":
        comparison = compare(study, targets=[], draws=1)
        return replace(comparison, speedups=comparison.speedups[:0])
    draws = DRAWS if len(study.complete) <= MANY_RUNS else DRAWS // 5
    return compare(study, targets=targets, draws=draws)


def _mark(folder: Path, about: dict[str, Any], study: Study) -> None:
    """Mark a folder as the output of an audit, before anything else is written into it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MARK, about | {"left_out": study.missing, "over": {}})


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, which has no NaN."""
    filled = table.astype(object).where(table.notna(), None)
    return [{str(name): row[name] for name in row} for row in filled.to_dict("records")]


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
    is_shown = rows.groupby("run", observed=True).cumcount() % step == 0
    return replace(study, evaluations=rows[is_shown])
