"""A study's tables: its curves, a row a run, and a row a series."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.curves import curves, phase_columns
from pods.analysis.load import Study
from pods.analysis.names import SEPARATOR
from pods.analysis.outcomes import OUTCOMES, final_accuracy, mean_accuracy, run_curves, window
from pods.analysis.statistics import spread
from pods.runs.files import replace
from pods.runs.status import duration

AT_THE_END = ("lenient", "format", "both", "length")
UNANSWERED = ("no_answer", "timeouts")
SHOWN = {"lenient": "authors' grader at end", "no_answer": "no answer", "timeouts": "timeouts"}


@dataclass(frozen=True)
class Tables:
    """What the verbs write and draw."""

    curves: pd.DataFrame
    """See `pods.analysis.curves.curves`."""
    runs: pd.DataFrame
    """A row a run: what it is and, where it is whole, its outcomes and the time of its steps."""
    summary: pd.DataFrame
    """A row a series, means over its whole runs."""


def tables(study: Study) -> Tables:
    """Make all of them."""
    runs = run_table(study)
    return Tables(curves(study), runs, summary(study, runs))


def run_table(study: Study) -> pd.DataFrame:
    """A row a run; outcomes are of the time that all whole runs of the study share.

    Returns:
        run, series, seed, arm, rule, n, m, rest (what else its series' name says, and what its arm
        sets beside the rule), seconds (where that time ends), final_accuracy, mean_accuracy, and of
        the run's last evaluation: lenient (where there is one), format, both, length, no_answer and
        timeouts (where some answer is such), steps, seconds_per_step; then mean seconds a step by
        phase.
    """
    rows = study.runs[["run", "series", "seed", "arm", "rule", "n", "m"]].copy()
    rows["rest"] = [_rest(str(row.series), f"{row.n}→{row.m}") for row in rows.itertuples()]
    if "selection" in study.runs:  # not in imported logs
        rows["rest"] = (rows.rest + SEPARATOR + study.runs.selection.fillna("")).str.strip(", ")
    whole = [curve for series in rows.series.unique() for curve in run_curves(study, series)]
    found = {}
    if whole:
        span = window(whole)
        found = {c.run: (span.end, mean_accuracy(c, span), final_accuracy(c, span)) for c in whole}
    rows[["seconds", *OUTCOMES]] = [found.get(run, (np.nan,) * 3) for run in rows.run]
    last = study.evaluations.sort_values("train_seconds", kind="stable").groupby("run").last()
    told = [name for name in AT_THE_END if name in last]
    told += [name for name in UNANSWERED if name in last and last[name].any()]
    ends = last[told].assign(
        steps=last.step, seconds_per_step=last.train_seconds / last.step.where(last.step > 0)
    )
    phases = study.steps.groupby("run")[phase_columns(study.steps)].mean()
    return rows.join(ends, on="run").join(phases, on="run").reset_index(drop=True)


def _rest(series: str, sizes: str) -> str:
    """What a series' name says beside arm and sizes: in front of them, and after a comma."""
    before, _, after = series.partition(sizes)
    return SEPARATOR.join(filter(None, [before.strip().rpartition(" ")[0], after.strip(", ")]))


def summary(study: Study, runs: pd.DataFrame) -> pd.DataFrame:
    """A row a series.

    Returns:
        series, n (whole runs), seconds; of final_accuracy (there) and mean_accuracy (until then):
        mean, stderr, low and high (95 % t interval), iqm; means of what else `run_table` has of
        the last evaluation, of steps, seconds_per_step and of each phase.
    """
    whole = runs[runs.run.isin(study.complete)]
    rows, told = [], [name for name in (*AT_THE_END, *UNANSWERED) if name in runs]
    for series in runs.series.unique():
        of = whole[whole.series == series]
        row: dict[str, object] = {"series": series, "n": len(of), "seconds": runs.seconds.max()}
        for name in OUTCOMES:
            row |= spread(name, of[name].to_numpy(float))
        means = [*told, "steps", "seconds_per_step", *phase_columns(runs)]
        rows.append(row | {name: of[name].mean() for name in means})
    return pd.DataFrame(rows)


def write(made: Tables, folder: Path) -> None:
    """Write them as CSV."""
    for name, table in {"curves": made.curves, "runs": made.runs, "summary": made.summary}.items():
        replace(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))


def at(seconds: float) -> str:
    """A point of the training clock, for a reader.

    >>> at(2.5), at(21600.0)
    ('2.5 s', '6 h 00 min')
    """
    return duration(seconds) if seconds >= 120 else f"{seconds:.3g} s"


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The summary for a reader: texts, mean ± stderr, milliseconds where steps are short.

    Unlike accuracy, shares by the authors' grader, without an answer and timed out are those of
    each run's last evaluation.
    """

    def pair(row: pd.Series, name: str) -> str:
        error = row[f"{name}_stderr"]
        return f"{row[name]:.3f}" + ("" if pd.isna(error) else f" ± {error:.3f}")

    def share(value: float) -> str:
        return "" if pd.isna(value) else f"{value:.3f}"

    slow = table.seconds_per_step.max() >= 2
    factor, unit, digits = (1.0, "s", 2) if slow else (1000.0, "ms", 1)
    end = at(table.seconds.max())
    rows = [
        {
            "series": row.series,
            "n": f"{row.n}",
            f"accuracy at {end}": pair(row, "final_accuracy"),
            "mean until then": pair(row, "mean_accuracy"),
            **{label: share(row[name]) for name, label in SHOWN.items() if name in table},
            "steps": f"{row.steps:.0f}",
            f"{unit}/step": f"{factor * row.seconds_per_step:.{digits}f}",
            **{
                phase.removeprefix("seconds/"): f"{factor * row[phase]:.{digits}f}"
                for phase in phase_columns(table)
            },
        }
        for _, row in table.iterrows()
    ]
    return pd.DataFrame(rows)
