"""Make a `Study` of other trainers' logs, and say what was left out of it and why."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pods.analysis.loading.imports import Imported
from pods.analysis.loading.study import Study
from pods_lab.audit.clocks import drop_without_common_span, set_clocks, set_tokens
from pods_lab.audit.formats import Log
from pods_lab.audit.labels import labels
from pods_lab.audit.left_out import called, some, unusable
from pods_lab.audit.lines import READERS
from pods_lab.audit.mapping import SUM, Mapping
from pods_lab.audit.records import Notes, Records, read_records

X = {"train_seconds": "seconds", "steps": "steps", "tokens": "tokens"}  # the fairest first
SHOWN = 12  # lines on what was left out
MOST_METHODS = 30  # more are runs whose methods were not told, and every two are compared
LARGEST_SEED = 2**53


@dataclass(frozen=True)
class Audited:
    """The study of an audit, and what is said of its runs."""

    study: Study
    table: pd.DataFrame
    """One row per run: run, file, method, seed, score, unit, axes (what it is compared over),
    first_step, last_step, seconds (at the last score), left_out (why; empty: it is not)."""
    notes: list[str]
    """What was done to the records, and what else a reader has to know."""


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
    logs, runs, nameless = _labelled(logs, mapping)
    records, notes = _records(logs, mapping, given)
    runs, seeded, about_seeds = _seeds(runs, mapping)
    notes += about_seeds
    if len(runs) == runs.series.nunique() > 1:
        notes.append(
            "each method has one run: `--by path:REGEX` with a group can read the method from names"
        )
    reasons = unusable(runs, logs, records, mapping.score or "")
    missing = [*left_out, *(f"{log.name}: {fault}" for log in logs for fault in log.faults)]
    missing += [f"{run}: has no method" for run in nameless]
    missing += [f"{one.run}: {fault}" for one in records for fault in one.faults]
    missing += [f"{run}: {reason}" for run, reason in reasons.items()]
    runs["complete"] = ~runs.run.isin(reasons)
    _check_methods(list(runs.series[runs.complete].unique()), mapping, missing)
    complete = [one for one in records if one.run not in reasons]
    for key in ("seconds", "tokens"):
        notes += drop_without_common_span(complete, key)

    table = _table(logs, runs, records, mapping, reasons)
    extra = ["run", "file", "unit", "first_step", "last_step", "end_seconds", "left_out"]
    beside = table.rename(columns={"seconds": "end_seconds"})[extra]
    runs = runs.merge(beside, on="run").sort_values(["series", "seed"], kind="stable")
    study = _study(runs, records, mapping, missing, "; ".join(notes))
    return Audited(replace(study, seeded=seeded), table, notes)


def _records(
    logs: Sequence[Log], mapping: Mapping, given: Collection[str]
) -> tuple[list[Records], list[str]]:
    """Read the records of all runs, with training seconds, and say what was done to them."""
    noted: Notes = {}
    records = [read_records(log, mapping, noted) for log in logs]
    notes = _unreadable(logs, records, mapping, given)
    set_clocks(records, mapping.seconds, noted)
    for one in records:
        set_tokens(one, mapping.tokens, noted)
    notes += [f"{note}: {some(runs)}" if runs else note for note, runs in noted.items()]
    return records, [*notes, *called(logs)]


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


def _labelled(logs: Sequence[Log], mapping: Mapping) -> tuple[list[Log], pd.DataFrame, list[str]]:
    """Return the logs with a method, a table of them, and the names of the others."""
    runs = pd.DataFrame({
        "run": [log.name for log in logs],
        "machine": [log.machine for log in logs],
        "series": labels(logs, "method", mapping.method),
        "seed": labels(logs, "seed", mapping.seed),
        "test_set": labels(logs, "test_set", mapping.test_set),
    }, dtype=object)  # fmt: skip
    has_method = runs.series.notna()
    if not has_method.any():
        raise ValueError(f"method={mapping.method}: no run has it")
    named = [log for log, has in zip(logs, has_method, strict=True) if has]
    nameless = sorted(runs.run[~has_method])
    runs = runs[has_method].reset_index(drop=True)
    runs = runs.assign(series=runs.series.astype(str), rule="", n=np.nan, m=np.nan, settings="")
    return named, runs.assign(arm=runs.series), nameless


def _seeds(runs: pd.DataFrame, mapping: Mapping) -> tuple[pd.DataFrame, bool, list[str]]:
    """Return the runs with whole numbers as seeds, whether these pair runs, and what to say.

    If a run has no seed, runs of a method are numbered instead.
    """
    numbers = pd.to_numeric(runs.seed, errors="coerce").astype(float)
    whole = (numbers == np.floor(numbers)) & (numbers.abs() <= LARGEST_SEED)
    if whole.all():
        return runs.assign(seed=numbers.astype(int)), True, []
    said = [f"{(~whole).sum()} of {len(runs)} runs have no seed, so none is paired"]
    texts = runs[~whole & runs.seed.notna()]
    if len(texts):
        first = texts.iloc[0]
        said.append(f"seed={mapping.seed}: {str(first.seed)[:40]!r} of {first.run} is no number")
    return runs.assign(seed=runs.groupby("series").cumcount()), False, said


def _unreadable(
    logs: Sequence[Log],
    records: Sequence[Records],
    mapping: Mapping,
    given: Collection[str],
) -> list[str]:
    """Say of time and tokens that no value can be read; if the user chose them, raise it."""
    lines = []
    for key in ("seconds", "tokens"):
        source = getattr(mapping, key)
        if source is None or any(np.isfinite(getattr(one, key)).any() for one in records):
            continue
        column = source.removeprefix(SUM)
        cells = [row[column] for log in logs for row in log.rows if row.get(column) is not None]
        if any(math.isfinite(READERS[key](cell)) for cell in cells):
            continue  # it can be read, and is not used for a reason that is said elsewhere
        what = "a time, such as 30.5 or 00:05:00" if key == "seconds" else "a number"
        example = f": {str(cells[0])[:40]!r} is none" if cells else ""
        line = f"{key}={source}: no value is {what}{example}, so nothing is compared over {key}"
        if key in given:
            raise ValueError(line)
        lines.append(line)
    return lines


def _check_methods(used: Sequence[str], mapping: Mapping, missing: Sequence[str]) -> None:
    """Raise a ValueError if no run is left, or these methods are too many or lack the baseline."""
    if not used:
        more = len(missing) - SHOWN
        lines = [*missing[:SHOWN], *([f"and {more} more such lines"] if more > 0 else [])]
        raise ValueError("\n".join(["no run can be used", *lines]))
    if len(used) > MOST_METHODS:
        fewer = f"--by config:KEY, column:NAME or path:REGEX must make {MOST_METHODS} at most"
        raise ValueError(f"method={mapping.method}: makes {len(used)} methods: {fewer}")
    if mapping.baseline is not None and mapping.baseline not in used:
        raise ValueError(f"baseline={mapping.baseline}: must be one of {' | '.join(used)}")


def _points(records: Sequence[Records], mapping: Mapping) -> pd.DataFrame:
    """Make one row per (run, step with a score); a percent becomes a share."""
    scale = 0.01 if mapping.unit == "percent" else 1.0
    parts = [np.isfinite(one.scores) for one in records]
    counts = [int(scored.sum()) for scored in parts]
    codes = np.repeat(np.arange(len(records)), counts)
    names = pd.Index([one.run for one in records])
    chosen = list(zip(records, parts, strict=True))
    steps = np.concatenate([one.steps[scored] for one, scored in chosen])
    return pd.DataFrame({
        "run": pd.Categorical.from_codes(codes, names),
        "step": steps,
        "accuracy": scale * np.concatenate([one.scores[scored] for one, scored in chosen]),
        "train_seconds": np.concatenate([one.seconds[scored] for one, scored in chosen]),
        "tokens": np.concatenate([one.tokens[scored] for one, scored in chosen]),
        "steps": steps,
        "repeats": mapping.repeats,
        "questions": mapping.questions or np.nan,
    })  # fmt: skip


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
    for log, (method, seed), one in zip(logs, labelled, records, strict=True):
        known = {"seconds": one.seconds, "steps": one.steps, "tokens": one.tokens}
        scored = np.flatnonzero(np.isfinite(one.scores))
        rows.append(
            {
                "run": log.name,
                "file": str(log.path),
                "method": method,
                "seed": seed,
                "score": mapping.score,
                "unit": mapping.unit,
                "axes": ", ".join(x for x, amounts in known.items() if np.isfinite(amounts).any()),
                "first_step": one.steps[scored[0]] if len(scored) else np.nan,
                "last_step": one.steps[scored[-1]] if len(scored) else np.nan,
                "seconds": one.seconds[scored[-1]] if len(scored) else np.nan,
                "left_out": reasons.get(log.name, ""),
            }
        )
    return pd.DataFrame(rows)


def _described(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Put series and seed beside the rows of these runs, in their order; categories are fast."""
    points = points.assign(run=points.run.cat.set_categories(list(runs.run)))
    points = points[points.run.notna()].sort_values(["run", "step"], kind="stable")
    codes = points.run.cat.codes.to_numpy()
    series = pd.Categorical(list(runs.series), list(dict.fromkeys(runs.series)))[codes]
    return points.assign(series=series, seed=runs.seed.to_numpy()[codes]).reset_index(drop=True)


def _machines(runs: pd.DataFrame) -> list[str]:
    """Name the machines that the logs name."""
    return sorted({*runs.machine} - {""}) or ["a machine that the logs do not name"]


def _inconsistent(runs: pd.DataFrame) -> Iterator[str]:
    """Yield in what the runs differ although they should not."""
    for column, title in {"machine": "clocks of machines", "test_set": "test sets"}.items():
        counts = Counter(str(value) for value in runs[column] if value not in (None, ""))
        named = ", ".join(f"{name} ({count} runs)" for name, count in counts.most_common(5))
        if len(counts) > 1:
            yield f"different {title}: {named}"


def axes(study: Study) -> Iterator[Study]:
    """Yield the study over each x that was recorded, the fairest one that all runs have first."""
    rows = study.evaluations
    several = rows.series.nunique() > 1
    known = {x: rows[rows[x].notna()] for x in X}
    for x in sorted(X, key=lambda x: len(known[x]) < len(rows)):
        if x == "steps" or (known[x].series.nunique() > several and known[x][x].max() > 0):
            lost = study.complete - {*known[x].run}
            lines = short([f"{run}: has no {X[x]} to compare over" for run in sorted(lost)])
            runs = study.runs.assign(complete=study.runs.complete & ~study.runs.run.isin(lost))
            missing = [*study.missing, *lines]
            yield replace(study, runs=runs, evaluations=known[x], x=x, missing=missing)


def short(lines: Sequence[str]) -> list[str]:
    """Return the first lines for a screen or a page, and how many more there are."""
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"{more} more lines in left_out.csv"] if more > 0 else [])]
