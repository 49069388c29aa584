"""The tables of a study: its curves, one row per run, and one row per series."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.loading.series_names import SEPARATOR
from pods.analysis.loading.study import Study, by_key, passes
from pods.analysis.numbers.curves import curves, phase_columns, time_grid
from pods.analysis.numbers.outcomes import (
    OUTCOMES,
    RunCurve,
    Window,
    amount,
    measure,
    run_curves,
    values_of,
)
from pods.analysis.numbers.span import window_of
from pods.analysis.numbers.statistics import spread

AT_THE_END = ("lenient", "format", "both", "length")
UNANSWERED = ("no_answer", "timeouts")
LEAST_CPU_SHARE = 0.8  # of the training seconds, below which a run waited for other processes
MOST_NAMED = 3  # runs that a sentence names; of more it says how many they are


@dataclass(frozen=True)
class Tables:
    """The tables that the verbs write and draw."""

    curves: pd.DataFrame
    """See `pods.analysis.numbers.curves.curves`."""
    runs: pd.DataFrame
    """One row per run: see `run_table`."""
    summary: pd.DataFrame
    """One row per series, averaged over its complete runs: see `summary`."""


def tables(study: Study) -> Tables:
    """Make all tables of a study."""
    runs = run_table(study)
    return Tables(curves(study), runs, summary(study, runs))


def run_table(study: Study) -> pd.DataFrame:
    """Make one row per run; outcomes cover the time that all complete runs of the study share.

    Returns:
        run, series, seed, arm, rule, n, m, the keys that vary, settings; seconds (the end of the
        shared time; end_steps if x is steps), final_accuracy, mean_accuracy; from the evaluation at
        its end lenient (if graded so), format, both, length, no_answer and timeouts (if there are
        any), pass@k; steps, seconds_per_step (of a cost dollars_per_step), and mean seconds per
        step by phase (not at prices); started (the time in UTC at which the run began to train, if
        it was recorded).
    """
    names = ["run", "series", "seed", "arm", "rule", "n", "m", *study.varied, "settings"]
    rows = study.runs[names].copy()
    complete: list[RunCurve] = []
    for series in rows.series.unique():
        complete += run_curves(study, series)
    measured = _outcomes(study, complete)
    rows = rows.join(measured, on="run")

    last = at_the_end(study)
    last_values = last[_shares(last)]
    last_values["steps"] = last.step
    last_values[study.per_step] = last[study.clock_column] / last.step.where(last.step > 0)
    phases = study.steps.groupby("run")[phase_columns(study.steps)].mean()
    rows = rows.join(last_values, on="run").join(phases, on="run")
    if "started" in study.runs and study.runs.started.notna().any():
        rows["started"] = study.runs.started
    return rows.reset_index(drop=True)


def _shares(last: pd.DataFrame) -> list[str]:
    """List the columns that are told of last evaluations, as far as these have them."""
    shown = [name for name in AT_THE_END if name in last]
    for name in UNANSWERED:
        if name in last and last[name].any():
            shown.append(name)
    return shown + passes(last)


def _outcomes(study: Study, complete: Sequence[RunCurve]) -> pd.DataFrame:
    """Measure complete runs in the window of all of them: its end and each outcome, by run."""
    table = pd.DataFrame(index=[curve.run for curve in complete])
    span = window_of(study, complete) if complete else Window(np.nan, np.nan)
    table[end_column(study.x)] = span.end
    for outcome in OUTCOMES:
        table[outcome] = values_of(outcome, complete, span)
    return table.astype(float)


def at_the_end(study: Study) -> pd.DataFrame:
    """Return the evaluation of each run that is nearest to the end of the window, by run."""
    rows = study.evaluations.sort_values(study.x, kind="stable")
    end = study.until
    if study.prices is not None:  # runs of equal budgets end at different costs
        end = float(time_grid(study)[-1])
    if math.isinf(end):
        return rows.groupby("run").last()
    nearest = (rows[study.x] - end).abs().groupby(rows.run).idxmin()
    return rows.loc[nearest].set_index("run")


def summary(study: Study, runs: pd.DataFrame) -> pd.DataFrame:
    """Make one row per series.

    Returns:
        series, runs (complete ones), seconds; of final_accuracy (at that time) and mean_accuracy
        (until then) mean, stderr, low and high (95 % t interval); means of the other
        columns of `run_table` from the evaluation there, of steps, seconds_per_step and each phase.
    """
    complete = runs[runs.run.isin(study.complete)]
    averaged = [name for name in AT_THE_END + UNANSWERED if name in runs]
    averaged += passes(runs)
    averaged += ["steps", study.per_step]
    averaged += phase_columns(runs)
    end = end_column(study.x)

    rows = []
    for series in runs.series.unique():
        series_runs = complete[complete.series == series]
        row: dict[str, object] = {"series": series, "runs": len(series_runs)}
        row[end] = runs[end].max()
        for outcome in OUTCOMES:
            row |= spread(outcome, series_runs[outcome].to_numpy(float))
        for name in averaged:
            row[name] = series_runs[name].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def end_column(x: str) -> str:
    """Return the column with the end of what all complete runs share."""
    return "seconds" if x == "train_seconds" else f"end_{x}"


def end_text(table: pd.DataFrame, x: str) -> str:
    """Show the end of what all complete runs share: 6 h 00 min, or 4,800 rollouts."""
    return amount(float(table[end_column(x)].max()), x)


def summary_title(table: pd.DataFrame, study: Study) -> str:
    """Say what the outcomes of a summary are, and of when its other columns."""
    name = measure(study)
    end = end_text(table, study.x)
    about = {
        "mean_accuracy": f"mean_accuracy: {name} averaged until {end}; ",
        "final_accuracy": f"final_accuracy: {name} at {end}; ",
    }
    outcomes = "".join(about[outcome] for outcome in _shown_outcomes(table))
    unit = study.per_step.partition("_")[0]
    priced = "" if study.prices is None else f", {study.clock}"
    return (
        f"{outcomes}±: standard error over runs;\n"
        f"{unit}: of a step{priced}; other shares: of the last evaluation"
    )


def readable(summary: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Format the summary for a reader, with some of its columns under the same names."""
    columns = {"series": summary.series, "runs": summary.runs.astype(str)}
    for outcome in _shown_outcomes(summary):
        columns[outcome] = _pairs(summary, outcome)
    for share in ("lenient", *UNANSWERED):
        if share in summary:
            columns[share] = summary[share].map("{:.3f}".format)
    columns["steps"] = summary.steps.map("{:.0f}".format)
    for cost in [study.per_step, *phase_columns(summary)]:
        columns[cost] = summary[cost].map("{:.3g}".format)
    return by_key(pd.DataFrame(columns).replace("nan", ""), study)


def _shown_outcomes(summary: pd.DataFrame) -> list[str]:
    """List the outcomes that a reader is shown: over no time, the mean is the final value."""
    if summary.mean_accuracy.equals(summary.final_accuracy):
        return ["final_accuracy"]
    return list(OUTCOMES)


def _pairs(summary: pd.DataFrame, outcome: str) -> "pd.Series[str]":
    errors = summary[f"{outcome}_stderr"].map(" ± {:.3f}".format).replace(" ± nan", "")
    return summary[outcome].map("{:.3f}".format) + errors


def slow_runs(study: Study) -> Iterator[str]:
    """Yield a line on the runs which other processes slowed down, if there are any."""
    if "cpu_share" not in study.runs:  # imported logs
        return
    slow = study.runs[study.runs.cpu_share < LEAST_CPU_SHARE]
    if slow.empty:
        return

    if len(slow) > MOST_NAMED:
        count = f"{len(slow)} of {len(study.runs)}"
        if len(slow) == len(study.runs):
            count = f"all {len(slow)}"
        which = f"{count} runs (lowest: {100 * slow.cpu_share.min():.0f} %)"
    else:
        names = []
        for series, seed, share in zip(slow.series, slow.seed, slow.cpu_share, strict=True):
            names.append(f"{series} seed {seed} ({100 * share:.0f} %)")
        which = SEPARATOR.join(names)
    yield (
        f"The CPU was used for less than {100 * LEAST_CPU_SHARE:.0f} % of the training time of "
        f"{which}: other processes, or a function that waits, made their measured times longer."
    )
