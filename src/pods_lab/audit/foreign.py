"""Make a `Study` of other trainers' logs; each thing left out is a line of its `missing`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pods.analysis.loading.imports import Imported
from pods.analysis.loading.study import Study
from pods_lab.audit.formats import Log
from pods_lab.audit.mapping import SUM, Mapping, value_of

X = {"train_seconds": "seconds", "steps": "steps", "tokens": "tokens"}  # the fairest first
SHOWN = 12  # lines on what was left out
MOST_METHODS = 30  # more are runs whose methods were not told, and every two are compared
CUT = 0.9  # of the steps that the median run of its method has: a shorter run was cut off


def study_of(logs: Sequence[Log], mapping: Mapping, left_out: Sequence[str]) -> Study:
    """Read runs as the mapping says; without a run, or the baseline, it is a ValueError."""
    columns = ("method", "seed", "test_set")
    found = [[log.name, log.machine, *(value_of(log, k, mapping) for k in columns)] for log in logs]
    runs = pd.DataFrame(found, columns=["run", "machine", "series", "seed", "test_set"])
    nameless = {*runs.run[runs.series.isna()]}
    logs, runs = [log for log in logs if log.name not in nameless], runs[runs.series.notna()]
    if not logs:
        raise ValueError(f"method={mapping['method']}: no run has it")
    runs = runs.assign(series=runs.series.astype(str), rule="", n=np.nan, m=np.nan, settings="")
    runs["arm"], runs["seed"] = runs.series, pd.to_numeric(runs.seed, errors="coerce")
    missing = [*left_out, *(f"{log.name}: {fault}" for log in logs for fault in log.faults)]
    missing += [f"{run}: has no method" for run in sorted(nameless)]
    points, notes = _points(logs, mapping, missing)
    without = runs.seed.isna().sum()
    if without:
        notes.append(f"{without} of {len(runs)} runs have no seed, so none is paired")
        runs["seed"] = runs.groupby("series").cumcount()
    if len(runs) == runs.series.nunique() > 1:
        notes.append("each method has one run: pods-audit.yaml can read method and seed from names")
    unusable = _unusable(runs, points)
    missing += [f"{run}: {reason}" for run, reason in unusable.items()]
    runs["complete"] = ~runs.run.isin(unusable)
    _check_methods(list(runs.series[runs.complete].unique()), mapping, missing)
    runs = runs.astype({"seed": int}).sort_values(["series", "seed"], kind="stable")
    points = _described(runs[runs.complete], points)
    steps = points.groupby("run", observed=True).step.max().median()
    if not points.accuracy.between(0, 1).all():
        notes.append(f"{mapping['score']} is no share: a point is 0.01 of it, and so is a percent")
    machines = sorted({*runs.machine} - {""}) or ["a machine that the logs do not name"]
    about = {"machines": machines, "budget": f"{steps:,.0f} steps", "note": "; ".join(notes),
             "missing": missing, "until": np.inf}  # fmt: skip
    return replace(
        Imported(runs, points, about).study("audit"), metric=mapping["score"], seeded=not without,
        baseline=mapping["baseline"], inconsistencies=list(_inconsistent(runs)), x="steps",
    )  # fmt: skip


def _check_methods(used: Sequence[str], mapping: Mapping, missing: Sequence[str]) -> None:
    """Raise a ValueError if no run is left, or these methods are too many or lack the baseline."""
    if not used:
        raise ValueError("\n".join(["no run can be used", *missing]))
    if len(used) > MOST_METHODS:
        fewer = f"--by config:KEY, column:NAME or path:REGEX must make {MOST_METHODS} at most"
        raise ValueError(f"method={mapping['method']}: makes {len(used)} methods: {fewer}")
    if mapping["baseline"] not in {None, *used}:
        raise ValueError(f"baseline={mapping['baseline']}: must be one of {' | '.join(used)}")


def axes(study: Study) -> Iterator[Study]:
    """Yield the study over each x that was recorded, the fairest one that all runs have first."""
    rows, several = study.evaluations, study.evaluations.series.nunique() > 1
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


def _points(
    logs: Sequence[Log], mapping: Mapping, missing: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Make one row per (run, step with a score), and notes; of two records the later counts."""
    table = _table(logs, mapping)
    wrong = table.scored & ~np.isfinite(table.score)
    missing += _each(table[wrong], "scores are not finite")
    missing += _each(table[table.scored & table.step.isna()], "scores have no step")
    table.loc[wrong, "score"] = np.nan
    table = table[table.step.notna()].drop(columns="scored")
    back = table.groupby("run", observed=True).step.diff() < 0
    notes = _each(table[back], "times resumed: of steps twice the later record counts")
    merged = table.groupby(["run", "step"], observed=True).last().reset_index()
    for key in ("seconds", "tokens"):
        missing += _clock(merged, key, mapping[key] or "")
    merged = merged[merged.score.notna()]
    size = {"repeats": mapping["repeats"], "questions": mapping["questions"] or np.nan}
    names = {"score": "accuracy", "seconds": "train_seconds"}
    return merged.rename(columns=names).assign(steps=merged.step, **size), notes


def _each(rows: pd.DataFrame, what: str) -> list[str]:
    """Say of each run that has such rows how many, and where the first is."""
    runs = rows.groupby("run", observed=True).step.agg(["size", "first"])
    return [f"{run}: {size} {what} (step {at:g})" for run, size, at in runs.itertuples()]


def _table(logs: Sequence[Log], mapping: Mapping) -> pd.DataFrame:
    """Take step, score, seconds and tokens from all rows of all logs, as numbers."""
    codes = np.repeat(np.arange(len(logs)), [len(log.rows) for log in logs])
    names = pd.Index([log.name for log in logs])
    table = pd.DataFrame({"run": pd.Categorical.from_codes(codes, names)})
    for key in ("step", "score", "seconds", "tokens"):
        sources = [mapping[key]] if isinstance(mapping[key], str | None) else mapping[key]
        values = []
        for log in logs:
            own = (name.removeprefix(SUM) for name in sources if name)
            name = next((name for name in own if name in log.columns), "")
            values += [row.get(name) for row in log.rows]
        column = pd.Series(values, dtype=object)
        table[key] = pd.to_numeric(column, errors="coerce").astype(float)
        if column.notna().any() and table[key].isna().all():  # Trackio's times of day are text
            times = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
            table[key] = (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        if key == "score":
            table["scored"] = [value is not None for value in values]
    return table


def _clock(merged: pd.DataFrame, key: str, source: str) -> list[str]:
    """Turn a column of merged rows into seconds or tokens since the start of each run.

    A step without a record has the last one before it. Of a run that goes back there is none.
    """
    if source.startswith(SUM):  # a line of every tenth step has the mean of ten
        known = merged[merged[key].notna()]
        steps = known.groupby("run", observed=True).step.diff().fillna(known.step.clip(lower=1))
        merged[key] = (known[key] * steps).groupby(known.run, observed=True).cumsum()
        merged.loc[(merged.step == 0) & merged[key].isna(), key] = 0.0
    elif key == "seconds" and merged[key].min() > 1e9:  # times of day
        merged[key] -= merged.groupby("run", observed=True)[key].transform("min")
    merged[key] = merged.groupby("run", observed=True)[key].ffill()
    back = merged[merged.groupby("run", observed=True)[key].diff() < 0]
    merged.loc[merged.run.isin(back.run), key] = np.nan
    return _each(back, f"times {key} run backwards, so they are not used")


def _unusable(runs: pd.DataFrame, points: pd.DataFrame) -> dict[str, str]:
    """Say of each run that is left out why."""
    by_run = points.groupby("run", observed=True)
    ends, rows_of = by_run.step.max(), by_run.indices
    out = {run: "has no score at a step" for run in runs.run if run not in rows_of}
    numbers = points[["step", "accuracy"]].to_numpy(np.float32)  # TensorBoard's precision
    first: dict[bytes, str] = {}
    for run, rows in rows_of.items():
        other = first.setdefault(numbers[rows].tobytes(), str(run))
        if other != run and len(rows) > 1:
            out[str(run)] = f"is the same run as {other}: the scores of all steps are equal"
    left = runs[~runs.run.isin(out)]
    left = left.assign(end=ends.reindex(left.run).to_numpy())
    usual = left.groupby("series").end.transform("median")
    for run, end in left[left.end < CUT * usual][["run", "end"]].itertuples(index=False):
        out[run] = f"is cut off at step {end:g}, before other runs of its method end"
    left = left[~left.run.isin(out)].sort_values("end", ascending=False, kind="stable")
    again = left.run[left.duplicated(["series", "seed"])]
    return out | dict.fromkeys(again, "has method and seed of another run, which is as long")


def _described(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Put series and seed beside the rows of these runs, in their order; categories are fast."""
    points = points.assign(run=points.run.cat.set_categories(list(runs.run)))
    points = points[points.run.notna()].sort_values(["run", "step"], kind="stable")
    codes = points.run.cat.codes.to_numpy()
    series = pd.Categorical(list(runs.series), list(dict.fromkeys(runs.series)))[codes]
    return points.assign(series=series, seed=runs.seed.to_numpy()[codes]).reset_index(drop=True)


def _inconsistent(runs: pd.DataFrame) -> Iterator[str]:
    """Yield in what the runs differ although they should not."""
    for column, title in {"machine": "clocks of machines", "test_set": "test sets"}.items():
        counts = Counter(str(value) for value in runs[column] if value not in (None, ""))
        named = ", ".join(f"{name} ({count} runs)" for name, count in counts.most_common(5))
        if len(counts) > 1:
            yield f"different {title}: {named}"
