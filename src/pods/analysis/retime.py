"""Time the steps of finished runs by the prices of another machine.

A step is the same under any clock, so only the time axis changes, and where on it a run ends.
"""

import math
from dataclasses import replace

import pandas as pd

from pods.analysis.study import Study, timed_by
from pods.config.clock_model import AMOUNTS, ClockModel


def retimed(study: Study, model: ClockModel) -> Study:
    """Return the study on the clock of a model.

    Raises:
        ValueError: the course of a run depends on the clock, or its steps were not logged.
    """
    where = f"clock={model.name}"
    if study.steps.empty or "clock_decides" not in study.runs:
        raise ValueError(f"{where}: study {study.name} has no log of steps that could be timed")
    bound = study.runs[study.runs.clock_decides != ""]
    if len(bound):
        series, why = bound.series.iloc[0], bound.clock_decides.iloc[0]
        raise ValueError(
            f"{where}: {series} has {why}, so its course depends on its clock; "
            "budget.clock=modelled trains it under another one"
        )
    seconds = model.seconds(_amounts(study))
    steps = study.steps.assign(**{"seconds/modelled": seconds})
    measured = [c for c in map(str, study.steps) if c.startswith(("seconds/", "cpu_seconds/"))]
    steps = steps.drop(columns=[column for column in measured if column != "seconds/modelled"])
    steps["train_seconds"] = running_total(steps, "seconds/modelled")
    evaluations, further = (
        rows
        if rows.empty
        else rows.assign(train_seconds=at_evaluations(steps.train_seconds, rows, steps))
        for rows in (study.evaluations, study.further)
    )
    ends = evaluations.groupby("run").train_seconds.max()
    timed = replace(
        study,
        runs=study.runs.assign(train_seconds=study.runs.run.map(ends)),
        evaluations=evaluations,
        further=further,
        steps=steps,
        budget=f"{study.budget} ({study.clock})" if "clock" in study.budget else study.budget,
    )
    return timed_by(timed, model)


def _amounts(study: Study) -> "dict[str, pd.Series[float]]":
    """Return rollouts and tokens of each step: as logged, else n and m of each group."""
    runs = study.runs.set_index("run")
    nominal = {
        "generated_rollouts": study.steps.run.map(runs.prompts * runs.n),
        "trained_rollouts": study.steps.run.map(runs.prompts * runs.m),
    }
    logged = study.steps.reindex(columns=[*AMOUNTS.values()])
    logged = logged.fillna(nominal).fillna(0.0)  # a step that keeps nothing logs no trained tokens
    return {name: logged[name] for name in AMOUNTS.values()}


def running_total(steps: pd.DataFrame, column: str) -> "pd.Series[float]":
    """Sum a column over a run's steps up to each one; NaN after a step that is not in the log."""
    ordered = steps.sort_values("step", kind="stable")
    runs = ordered.groupby("run")
    total, count = runs[column].cumsum(), runs.cumcount() + 1
    return total.where(count == ordered.step).reindex(steps.index)


def at_evaluations(
    total: "pd.Series[float]", rows: pd.DataFrame, steps: pd.DataFrame
) -> "pd.Series[float]":
    """Look up sums at the step of each evaluation; 0 before the first step."""
    known = dict(zip(zip(steps.run, steps.step, strict=True), total, strict=True))
    keys = zip(rows.run, rows.step, strict=True)
    values = [0.0 if step == 0 else known.get((run, step), math.nan) for run, step in keys]
    return pd.Series(values, rows.index, float)
