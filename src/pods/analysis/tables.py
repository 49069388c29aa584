"""The tables of a study: its curves, one row per run, and one row per series."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.curves import curves, phase_columns
from pods.analysis.outcomes import (
    MEASURES,
    OUTCOMES,
    final_accuracy,
    mean_accuracy,
    run_curves,
    window,
)
from pods.analysis.repeats import pass_at_k, sizes
from pods.analysis.series_names import SEPARATOR
from pods.analysis.statistics import spread
from pods.analysis.study import MEASURED, Study
from pods.runs.files import replace
from pods.runs.status import duration

AT_THE_END = ("lenient", "format", "both", "length")
UNANSWERED = ("no_answer", "timeouts")
SHOWN = {"lenient": "authors' grader at end", "no_answer": "no answer", "timeouts": "timeouts"}


@dataclass(frozen=True)
class Tables:
    """The tables that the verbs write and draw."""

    curves: pd.DataFrame
    """See `pods.analysis.curves.curves`."""
    runs: pd.DataFrame
    """One row per run: see `run_table`."""
    summary: pd.DataFrame
    """One row per series, averaged over its complete runs: see `summary`."""


def tables(study: Study) -> Tables:
    """Make all tables of a study."""
    runs = run_table(study)
    made = (curves(study), runs, summary(study, runs))
    return Tables(*map(study.labelled, made))


def run_table(study: Study) -> pd.DataFrame:
    """Make one row per run; outcomes cover the time that all complete runs of the study share.

    Returns:
        run, series, seed, arm, rule, n, m; rest (what else distinguishes the series: the keys in
        its name and those that an arm may set); seconds (the end of the shared time; end_steps and
        so on if another x is chosen),
        final_accuracy, mean_accuracy; from the run's last evaluation lenient (if graded so),
        format, both, length, no_answer and timeouts (if there are any), pass@k, and NAME/accuracy,
        NAME/lenient, NAME/pass@k and NAME/maj@R on further test sets; steps, seconds_per_step, and
        mean seconds per step by phase.
    """
    rows = study.runs[["run", "series", "seed", "arm", "rule", "n", "m"]].copy()
    own_names = study.runs.get("curve", rows.series)  # without the labels that a user gave
    sizes = rows.n.astype(str) + "→" + rows.m.astype(str)
    rows["rest"] = [_rest(str(name), size) for name, size in zip(own_names, sizes, strict=True)]
    if "selection" in study.runs:  # not in imported logs
        rows["rest"] = (rows.rest + SEPARATOR + study.runs.selection.fillna("")).str.strip(", ")
    complete = [curve for series in rows.series.unique() for curve in run_curves(study, series)]
    outcomes = {}
    if complete:
        span = window(complete, study.until)
        outcomes = {
            curve.run: (span.end, mean_accuracy(curve, span), final_accuracy(curve, span))
            for curve in complete
        }
    rows[[end_column(study.x), *OUTCOMES]] = [outcomes.get(run, (np.nan,) * 3) for run in rows.run]
    last = at_the_end(study)
    names = [name for name in AT_THE_END if name in last]
    names += [name for name in UNANSWERED if name in last and last[name].any()]
    ends = (
        last[names]
        .join(_of_repeats(study, last))
        .join(_further(study, last))
        .assign(
            steps=last.step, seconds_per_step=last.train_seconds / last.step.where(last.step > 0)
        )
    )
    phases = study.steps.groupby("run")[phase_columns(study.steps)].mean()
    return rows.join(ends, on="run").join(phases, on="run").reset_index(drop=True)


def at_the_end(study: Study) -> pd.DataFrame:
    """Return the evaluation of each run that is nearest to the end of the window, by run."""
    rows = study.evaluations.sort_values("train_seconds", kind="stable")
    if math.isinf(study.until):
        return rows.groupby("run").last()
    nearest = (rows[study.x] - study.until).abs().groupby(rows.run).idxmin()
    return rows.loc[nearest].set_index("run")


def _of_repeats(study: Study, last: pd.DataFrame) -> pd.DataFrame:
    """Return pass@k on the main test set in each run's last evaluation, by run.

    It is known of the last evaluation alone, so a window that ends before has none.
    """
    rows: dict[object, dict[str, float]] = {}
    if not math.isinf(study.until):
        return pd.DataFrame(index=last.index)
    for run, of_run in study.questions.groupby("run"):
        repeats = int(last.repeats[run])
        right = (of_run.correct * repeats).round().to_numpy(int)
        rows[run] = {f"pass@{k}": pass_at_k(right, repeats, k) for k in sizes(repeats)}
    return pd.DataFrame.from_dict(rows, orient="index")


def _further(study: Study, last: pd.DataFrame) -> pd.DataFrame:
    """Return the outcomes on further test sets in each run's last evaluation, by run."""
    rows = pd.DataFrame(index=last.index)
    for name in study.further_sets:
        on = study.on(name).set_index("run")
        on = on[on.step == last.step.reindex(on.index)]
        columns = map(str, on)
        shown = [each for each in columns if each in ("accuracy", "lenient") or "@" in each]
        rows = rows.join(on[shown].add_prefix(f"{name}/"))
    return rows


def _rest(series: str, sizes: str) -> str:
    """Return what a series' name says besides arm and sizes: before them and after a comma."""
    before, _, after = series.partition(sizes)
    return SEPARATOR.join(filter(None, [before.strip().rpartition(" ")[0], after.strip(", ")]))


def summary(study: Study, runs: pd.DataFrame) -> pd.DataFrame:
    """Make one row per series.

    Returns:
        series, n (complete runs), seconds; of final_accuracy (at that time) and mean_accuracy
        (until then), and of NAME/accuracy on further test sets (in the last evaluation), mean,
        stderr, low and high (95 % t interval) and iqm; means of the other
        columns of `run_table` from the last evaluation, of steps, seconds_per_step and each phase.
    """
    complete = runs[runs.run.isin(study.complete)]
    names = [name for name in (*AT_THE_END, *UNANSWERED) if name in runs]
    further = [name for name in map(str, runs) if name.endswith("/accuracy")]
    repeated = [name for name in map(str, runs) if "@" in name or name.endswith("/lenient")]
    rows = []
    for series in runs.series.unique():
        of_series = complete[complete.series == series]
        row: dict[str, object] = {"series": series, "n": len(of_series)}
        row[end_column(study.x)] = runs[end_column(study.x)].max()
        for name in (*OUTCOMES, *further):
            row |= spread(name, of_series[name].to_numpy(float))
        means = [*names, "steps", "seconds_per_step", *phase_columns(runs)]
        # a mean over some of the runs would not be that of the series
        row |= {name: of_series[name].mean(skipna=False) for name in repeated}
        rows.append(row | {name: of_series[name].mean() for name in means})
    return pd.DataFrame(rows)


def write(tables: Tables, folder: Path) -> None:
    """Write the tables as CSV."""
    for name in ("curves", "runs", "summary"):
        table = getattr(tables, name)
        replace(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))


def end_column(x: str) -> str:
    """Return the column with the end of what all complete runs share."""
    return "seconds" if x == "train_seconds" else f"end_{x}"


def end_text(table: pd.DataFrame, x: str) -> str:
    """Show the end of what all complete runs share: 6 h 00 min, or 4,800 rollouts."""
    return amount(float(table[end_column(x)].max()), x)


def amount(value: float, x: str) -> str:
    """Show an amount of what curves are drawn over.

    >>> amount(2.5, "train_seconds"), amount(4800.0, "generated_tokens")
    ('2.5 s', '4,800 generated tokens')
    """
    return clock_text(value) if x == "train_seconds" else f"{value:,.0f} {x.replace('_', ' ')}"


def clock_words(study: Study) -> str:
    """Return what follows an amount of training time in a text."""
    of_clock = " of training clock" if study.x == "train_seconds" else ""
    return of_clock if study.clock == MEASURED or not of_clock else f"{of_clock} {study.clock}"


def clock_text(seconds: float) -> str:
    """Show a time on the training clock.

    >>> clock_text(2.5), clock_text(21600.0)
    ('2.5 s', '6 h 00 min')
    """
    return duration(seconds) if seconds >= 120 else f"{seconds:.3g} s"


def json_value(value: Any, infinite: str) -> Any:
    """Return a value of a table as JSON can hold it: NaN as null, infinity as a word.

    >>> json_value(np.float64(0.5), "never"), json_value(np.inf, "never"), json_value(np.nan, "")
    (0.5, 'never', None)
    """
    bare = value.item() if isinstance(value, np.generic) else value
    if not isinstance(bare, float) or math.isfinite(bare):
        return bare
    return None if math.isnan(bare) else infinite


def _repeated(table: pd.DataFrame) -> dict[str, str]:
    """Return titles and columns of each test set's accuracy, pass@k for the largest k, and maj@k.

    The accuracy on the main test set is not among them: it is an outcome.

    >>> names = ["pass@2", "pass@4", "amc23/accuracy", "amc23/pass@2", "amc23/maj@2"]
    >>> list(_repeated(pd.DataFrame({name: [0.5] for name in names})))
    ['pass@4', 'amc23', 'amc23 maj@2', 'amc23 pass@2']
    """
    last: dict[tuple[str, str], str] = {}
    for name in map(str, table):
        test_set, _, measure = name.rpartition("/")
        if table[name].notna().any() and ("@" in measure or (test_set and measure == "accuracy")):
            last[test_set, measure.partition("@")[0]] = name
    names = [last[key] for key in sorted(last)]
    return {name.removesuffix("/accuracy").replace("/", " "): name for name in names}


def readable(
    table: pd.DataFrame, x: str = "train_seconds", metric: str = "accuracy"
) -> pd.DataFrame:
    """Format the summary for a reader: mean ± stderr, milliseconds where steps are short.

    Unlike accuracy, the shares accepted by the authors' grader, without an answer and timed out,
    pass@k and everything on further test sets are those of each run's last evaluation.
    """

    def pair(row: pd.Series, name: str) -> str:
        error = row.get(f"{name}_stderr")
        return f"{row[name]:.3f}" + ("" if pd.isna(error) else f" ± {error:.3f}")

    slow = table.seconds_per_step.max() >= 2
    factor, unit, digits = (1.0, "s", 2) if slow else (1000.0, "ms", 1)
    end = end_text(table, x)
    phases = phase_columns(table)
    repeated = _repeated(table)
    rows = [
        {
            "series": row.series,
            "n": f"{row.n}",
            f"{MEASURES[metric]} at {end}": pair(row, "final_accuracy"),
            "mean until then": pair(row, "mean_accuracy"),
            **{
                title: "" if pd.isna(row[name]) else f"{row[name]:.3f}"
                for name, title in SHOWN.items()
                if name in table
            },
            **{
                title: "" if pd.isna(row[name]) else pair(row, name)
                for title, name in repeated.items()
            },
            "steps": f"{row.steps:.0f}",
            f"{unit}/step": f"{factor * row.seconds_per_step:.{digits}f}",
            **{
                name.removeprefix("seconds/"): f"{factor * row[name]:.{digits}f}" for name in phases
            },
        }
        for _, row in table.iterrows()
    ]
    return pd.DataFrame(rows)
