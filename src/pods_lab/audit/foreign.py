"""Make a `Study` of other trainers' logs, and say what was left out of it and why."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pods.analysis.loading.imports import Imported
from pods.analysis.loading.study import Study
from pods.types import Floats
from pods_lab.audit.cautions import cautions
from pods_lab.audit.clocks import drop_without_common_span, set_clocks, set_tokens
from pods_lab.audit.formats import Log, some
from pods_lab.audit.labels import LabelledRuns, label_runs, read_seeds
from pods_lab.audit.left_out import unusable
from pods_lab.audit.lines import LONGEST_CELL, READERS
from pods_lab.audit.mapping import Mapping, column_of
from pods_lab.audit.over_settings import pool
from pods_lab.audit.records import Notes, Records, as_final_scores, read_records

SHOWN = 12  # lines on what was left out
MOST_METHODS = 30  # more are runs whose methods were not told, and every two are compared


@dataclass(frozen=True)
class Audited:
    """The study of an audit, and what is said of its runs."""

    study: Study
    table: pd.DataFrame
    """One row per run: run, file, method, seed, score, unit, axes (what it is compared over),
    first_step, last_step, seconds (at the last score), left_out (why; empty: it is not)."""
    notes: list[str]
    """What was done to the records, and what else a reader has to know."""
    warnings: list[str]
    """What may make a verdict wrong."""


def study_of(
    logs: Sequence[Log],
    mapping: Mapping,
    left_out: Sequence[str] = (),
    given: Collection[str] = (),
) -> Audited:
    """Read runs as the mapping says.

    Args:
        logs: one per run.
        mapping: complete, as `mapping.check` returns it.
        left_out: what the readers left out, a line each.
        given: keys of the mapping that the user chose, which must be readable.

    A ValueError says that no run is left, that a chosen column cannot be read, or that there is
    no such baseline.
    """
    if mapping.setting:
        pooled = pool(logs, mapping)
        lost = [*left_out, *pooled.left_out]
        audited = study_of(pooled.logs, pooled.mapping, lost, given)
        return replace(audited, notes=[pooled.note, *audited.notes])

    labelled = label_runs(logs, mapping)
    logs = labelled.logs
    records, notes = _records(logs, mapping, given)
    seeds = read_seeds(labelled.runs, mapping)
    runs = seeds.runs
    notes += seeds.notes
    if len(runs) == runs.series.nunique() > 1:
        notes.append(
            "each method has one run: `--by path:REGEX` with a group can read the method from names"
        )

    reasons = unusable(runs, logs, records, mapping.score or "")
    missing = list(left_out) + _faults(labelled, records)
    missing += [f"{run}: {reason}" for run, reason in reasons.items()]
    runs["complete"] = ~runs.run.isin(reasons)
    _check_methods(list(runs.series[runs.complete].unique()), mapping, missing)

    complete = [run_records for run_records in records if run_records.run not in reasons]
    for key in ("seconds", "tokens"):
        notes += drop_without_common_span(complete, key)
    table = _table(logs, runs, records, mapping, reasons)
    columns = ["run", "file", "unit", "first_step", "last_step", "end_seconds", "left_out"]
    ends = table.rename(columns={"seconds": "end_seconds"})[columns]
    runs = runs.merge(ends, on="run").sort_values(["series", "seed"], kind="stable")
    study = _study(runs, records, mapping, missing, "; ".join(notes))
    study = replace(study, seeded=seeds.pair_runs)
    return Audited(study, table, notes, list(cautions(runs, records, reasons)))


def _faults(labelled: LabelledRuns, all_records: Sequence[Records]) -> list[str]:
    """Say what of runs is left out, and which runs have no method."""
    lines = []
    for log in labelled.logs:
        lines += [f"{log.name}: {fault}" for fault in log.faults]
    lines += [f"{run}: has no method" for run in labelled.nameless]
    for records in all_records:
        lines += [f"{records.run}: {fault}" for fault in records.faults]
    return lines


def _records(
    logs: Sequence[Log], mapping: Mapping, given: Collection[str]
) -> tuple[list[Records], list[str]]:
    """Read the records of all runs, with training seconds, and say what was done to them."""
    runs_by_note: Notes = {}
    all_records = [read_records(log, mapping, runs_by_note) for log in logs]
    notes = _unreadable(logs, all_records, mapping, given)
    set_clocks(all_records, mapping.seconds, runs_by_note)
    for records in all_records:
        set_tokens(records, mapping.tokens, runs_by_note)

    notes += as_final_scores(all_records)
    for note, runs in runs_by_note.items():
        notes.append(f"{note}: {some(runs)}" if runs else note)
    return all_records, notes


def _study(
    runs: pd.DataFrame,
    records: Sequence[Records],
    mapping: Mapping,
    missing: Sequence[str],
    note: str,
) -> Study:
    """Make the study of the complete runs over steps."""
    points = _described(runs[runs.complete], _points(records, mapping))
    steps = points.groupby("run", observed=True).step.max().median()
    about = {
        "machines": _machines(runs),
        "budget": f"{steps:,.0f} steps",
        "note": note,
        "missing": missing,
        "until": np.inf,
    }
    return replace(
        Imported(runs, points, about).study("audit"),
        metric=mapping.score or "",
        share=mapping.unit != "score",
        baseline=mapping.baseline,
        inconsistencies=list(_inconsistent(runs)),
        x="steps",
    )


def _unreadable(
    logs: Sequence[Log],
    all_records: Sequence[Records],
    mapping: Mapping,
    given: Collection[str],
) -> list[str]:
    """Say of time and tokens that no value can be read; if the user chose them, raise it."""
    lines = []
    for key in ("seconds", "tokens"):
        source = getattr(mapping, key)
        if source is None:
            continue
        if any(np.isfinite(getattr(records, key)).any() for records in all_records):
            continue
        line = _unreadable_line(logs, key, source)
        if line and key in given:
            raise ValueError(line)
        if line:
            lines.append(line)
    return lines


def _unreadable_line(logs: Sequence[Log], key: str, source: str) -> str:
    """Say that no cell of a time or of tokens can be read; empty: some can.

    Those are not used for a reason that is said elsewhere.
    """
    cells = []
    for log in logs:
        cells += log.cells(column_of(source))
    if any(math.isfinite(READERS[key](cell)) for cell in cells):
        return ""
    kind = "a time, such as 30.5 or 00:05:00" if key == "seconds" else "a number"
    example = f": {str(cells[0])[:LONGEST_CELL]!r} is none" if cells else ""
    return f"{key}={source}: no value is {kind}{example}, so nothing is compared over {key}"


def _check_methods(used: Sequence[str], mapping: Mapping, missing: Sequence[str]) -> None:
    """Raise a ValueError if no run is left, or these methods are too many or lack the baseline."""
    if not used:
        lines = ["no run can be used", *missing[:SHOWN]]
        if len(missing) > SHOWN:
            lines.append(f"and {len(missing) - SHOWN} more such lines")
        raise ValueError("\n".join(lines))
    if len(used) > MOST_METHODS:
        fewer = f"--by config:KEY, column:NAME or path:REGEX must make {MOST_METHODS} at most"
        raise ValueError(f"method={mapping.method}: makes {len(used)} methods: {fewer}")
    if mapping.baseline is not None and mapping.baseline not in used:
        raise ValueError(f"baseline={mapping.baseline}: must be one of {' | '.join(used)}")


def _points(records: Sequence[Records], mapping: Mapping) -> pd.DataFrame:
    """Make one row per (run, step with a score); a percent becomes a share."""
    scale = 0.01 if mapping.unit == "percent" else 1.0
    names = ["step", "accuracy", "train_seconds", "tokens"]
    parts: dict[str, list[Floats]] = {name: [] for name in names}
    counts = []
    for run in records:
        scored = np.isfinite(run.scores)
        counts.append(int(scored.sum()))
        parts["step"].append(run.steps[scored])
        parts["accuracy"].append(scale * run.scores[scored])
        parts["train_seconds"].append(run.seconds[scored])
        parts["tokens"].append(run.tokens[scored])

    run_numbers = np.repeat(np.arange(len(records)), counts)
    runs = pd.Categorical.from_codes(run_numbers, pd.Index([run.run for run in records]))
    columns = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    points = pd.DataFrame({"run": runs} | columns)
    return points.assign(
        steps=points.step, repeats=mapping.repeats, questions=mapping.questions or np.nan
    )


def _table(
    logs: Sequence[Log],
    runs: pd.DataFrame,
    records: Sequence[Records],
    mapping: Mapping,
    reasons: dict[str, str],
) -> pd.DataFrame:
    """Make one row per run, as `Audited` says."""
    rows = []
    labelled = zip(runs.series, runs.seed, strict=True)
    for log, (method, seed), run in zip(logs, labelled, records, strict=True):
        row = {
            "run": log.name,
            "file": str(log.path),
            "method": method,
            "seed": seed,
            "score": mapping.score,
            "unit": mapping.unit,
            "axes": ", ".join(_axes_of(run)),
            "first_step": np.nan,
            "last_step": np.nan,
            "seconds": np.nan,
            "left_out": reasons.get(log.name, ""),
        }
        scored = np.flatnonzero(np.isfinite(run.scores))
        if len(scored):
            row["first_step"] = run.steps[scored[0]]
            row["last_step"] = run.steps[scored[-1]]
            row["seconds"] = run.seconds[scored[-1]]
        rows.append(row)
    return pd.DataFrame(rows)


def _axes_of(run: Records) -> list[str]:
    """Return the x over which a run has points."""
    amounts = {"seconds": run.seconds, "steps": run.steps, "tokens": run.tokens}
    return [x for x, values in amounts.items() if np.isfinite(values).any()]


def _described(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Put series and seed beside the rows of these runs, in their order; categories are fast."""
    points = points.assign(run=points.run.cat.set_categories(list(runs.run)))
    points = points[points.run.notna()].sort_values(["run", "step"], kind="stable")
    codes = points.run.cat.codes.to_numpy()
    series = pd.Categorical(list(runs.series), list(dict.fromkeys(runs.series)))[codes]
    return points.assign(series=series, seed=runs.seed.to_numpy()[codes]).reset_index(drop=True)


def _machines(runs: pd.DataFrame) -> list[str]:
    """Name the machines that the logs name."""
    names = set(runs.machine) - {""}
    return sorted(names) or ["a machine that the logs do not name"]


def _inconsistent(runs: pd.DataFrame) -> Iterator[str]:
    """Yield in what the runs differ although they should not."""
    for column, title in {"machine": "clocks of machines", "test_set": "test sets"}.items():
        counts = Counter(str(value) for value in runs[column] if value not in (None, ""))
        named = ", ".join(f"{name} ({count} runs)" for name, count in counts.most_common(5))
        if len(counts) > 1:
            yield f"different {title}: {named}"
