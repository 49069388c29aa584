"""The x over which runs can be compared: training seconds, steps and tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from pods.analysis.loading.study import Study
from pods.system import text

X = {"train_seconds": "seconds", "steps": "steps", "tokens": "tokens"}  # the fairest first
SHOWN = 12  # lines on what was left out


def axes(study: Study) -> Iterator[Study]:
    """Yield the study over each x that was recorded, the fairest one that all runs have first."""
    rows = study.evaluations
    several = rows.series.nunique() > 1
    rows_over = {x: rows[rows[x].notna()] for x in X}
    whole_first = sorted(X, key=lambda x: len(rows_over[x]) < len(rows))  # stable
    for x in whole_first:
        if x == "steps" or _is_comparable(rows_over[x], x, several):
            yield _over(study, x, rows_over[x])


def _is_comparable(rows: pd.DataFrame, x: str, several: bool) -> bool:
    """Return whether two methods, or the only one, have points after the start of an x."""
    least = 2 if several else 1
    return rows.series.nunique() >= least and rows[x].max() > 0


def _over(study: Study, x: str, rows: pd.DataFrame) -> Study:
    """Return the study over an x, without the runs that have no points over it."""
    lost = study.complete - set(rows.run)
    lines = short([f"{run}: has no {X[x]} to compare over" for run in sorted(lost)])
    complete = study.runs.complete & ~study.runs.run.isin(lost)
    return replace(
        study,
        runs=study.runs.assign(complete=complete),
        evaluations=rows,
        x=x,
        missing=list(study.missing) + lines,
    )


def short(lines: Sequence[str]) -> list[str]:
    """Return the first lines for a screen or a page, and how many more there are."""
    return text.short(lines, SHOWN, "more lines in left_out.csv")
