"""A linear model of the seconds per step: fixed + b x rollouts generated + c x rollouts kept.

A step of B prompts generates B n rollouts and keeps B m of them, so that runs with different B
share one fit. Where prompts are resampled or skipped, the logged numbers of rollouts are used.
Costs that the measured (n, m) do not identify are NaN.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.numbers.curves import phase_columns
from pods_lab.price.least_squares import Fit, fit

Pair = tuple[int, int]  # n and m

STEP = ("fixed", "generated", "kept")
PHASES: dict[str, tuple[str, ...]] = {  # the terms of each phase; a rule reads all n rollouts
    "generate": ("fixed", "generated"),
    "reward": ("fixed", "generated"),
    "select": ("fixed", "generated"),
    "update": ("fixed", "kept"),
    "sync": ("fixed",),
}
ROLLOUTS = {"generated": "generated_rollouts", "kept": "trained_rollouts"}
"""The terms that count rollouts, and the columns in which steps log them."""


@dataclass(frozen=True)
class CostModel:
    """The fits of one setting's runs."""

    runs: pd.DataFrame  # one row per run with a known time per step, as returned by `per_run`
    steady: pd.DataFrame  # those that enter the fits
    total: Fit  # seconds of a step by the terms of `STEP`
    phases: dict[str, Fit]  # seconds of each by its own terms, which need fewer (n, m)

    @property
    def prompts(self) -> int:
        """The most frequent number of prompts per step."""
        return int(self.runs.prompts.mode().iloc[0])


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of one step at some (n, m)."""

    seconds: float  # NaN where the runs do not identify them
    stderr: float  # for one new run; NaN where unknown
    phases: dict[str, float]  # seconds of each, from its own fit
    source: str  # `total`, or `phases` where only their sum is identified
    outside: bool  # some number of rollouts was not measured


def per_run(runs: pd.DataFrame, steps: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add the means per step to each run: rollouts and seconds, in all and by phase.

    Without a log of steps, the seconds are those of the last evaluation divided by its step.
    """
    table = runs.set_index("run")
    table = table.assign(generated=table.prompts * table.n, kept=table.prompts * table.m)
    for name, column in ROLLOUTS.items():
        if column in steps:
            logged = steps.groupby("run")[column].mean().reindex(table.index)
            table[name] = logged.fillna(table[name])

    last = evaluations.sort_values("step").groupby("run").last().reindex(table.index)
    table["seconds"] = (last.train_seconds / last.step.where(last.step > 0)).astype(float)
    phases = phase_columns(steps)
    if phases:
        total = steps[phases].sum(axis=1).groupby(steps.run).mean().reindex(table.index)
        table = table.join(steps.groupby("run")[phases].mean())
        table["seconds"] = total.fillna(table.seconds)
    return table.reset_index()


def cost_model(table: pd.DataFrame) -> CostModel:
    """Fit the seconds per step of rows of `per_run` that differ in rule, n, m, prompts, seed only.

    Runs that resample prompts or skip groups are left out, unless all do: resampling repeats a
    fixed cost, and its slightly varying numbers of rollouts would be mistaken for a slope.
    """
    runs = table.dropna(subset="seconds")
    nominal = np.isclose(runs.generated, runs.prompts * runs.n)
    nominal &= np.isclose(runs.kept, runs.prompts * runs.m)
    steady = runs[nominal] if nominal.any() else runs
    phases = {}
    for phase, terms in PHASES.items():
        column = f"seconds/{phase}"
        if column in steady:
            phases[phase] = fit(steady, column, terms)
    return CostModel(runs, steady, total=fit(steady, "seconds", STEP), phases=phases)


def coefficient(model: CostModel, term: str) -> tuple[float, float]:
    """Return seconds per unit of a term and their standard error.

    Where the total does not identify the term, the phases' coefficients are summed. The error of
    that sum is unknown (NaN), because the phases are fitted separately to the same runs.
    """
    value, stderr = model.total.at({term: 1.0})
    if np.isnan(value) and model.phases:
        values = [phase.at({term: 1.0})[0] for phase in model.phases.values()]
        return sum(values), float("nan")
    return value, stderr


def predict(model: CostModel, n: float, m: float, prompts: int | None = None) -> Prediction:
    """Predict the cost of a step of (n, m), by default with the most frequent number of prompts."""
    size = prompts or model.prompts
    point = {"fixed": 1.0, "generated": float(size * n), "kept": float(size * m)}
    phases = {}
    for phase, line in model.phases.items():
        phases[phase], _ = line.at(point)

    source = "total"
    seconds, stderr = model.total.at(point)
    if np.isnan(seconds) and phases:
        source = "phases"
        seconds = sum(phases.values())
        stderr = float("nan")

    outside = False
    for rollouts in ROLLOUTS:
        measured = model.steady[rollouts]
        outside |= not measured.min() <= point[rollouts] <= measured.max()
    return Prediction(
        seconds=seconds,
        stderr=float(np.hypot(stderr, model.total.residual_sd)),
        phases=phases,
        source=source,
        outside=outside,
    )


def residuals(model: CostModel) -> pd.DataFrame:
    """Compare the fit with the measurements, one row per (n, m, prompts, rule, arm).

    Returns:
        n, m, prompts, rule, arm, runs, seconds (mean measured), fitted, residual (measured -
        fitted, in seconds), percent (of fitted).
    """
    keys = ["n", "m", "prompts", "rule", "arm"]
    groups = model.runs.groupby(keys)
    table = groups[["generated", "kept", "seconds"]].mean().assign(runs=groups.size()).reset_index()
    table["fitted"] = [
        predict(model, generated, kept, prompts=1).seconds
        for generated, kept in zip(table.generated, table.kept, strict=True)
    ]
    table["residual"] = table.seconds - table.fitted
    table["percent"] = 100 * table.residual / table.fitted
    return table[[*keys, "runs", "seconds", "fitted", "residual", "percent"]]


def why_not_identifiable(model: CostModel) -> str:
    """Explain why some coefficient of the total is NaN; return an empty string if none is."""
    if model.total.rank == len(STEP):
        return ""
    runs = model.steady
    constant = []
    costs = []
    for letter, rollouts in (("n", "generated"), ("m", "kept")):
        if runs[letter].nunique() == 1:
            constant.append(f"{letter} = {runs[letter].iloc[0]}")
            costs.append(f"the cost of {letter}")
        elif runs[rollouts].nunique() == 1:
            constant.append(f"{runs[rollouts].iloc[0]:g} rollouts {rollouts} per step")
            costs.append(f"the cost of {letter}")

    if constant:
        why = (
            f"all runs have {' and '.join(constant)}, so {' and '.join(costs)} cannot be "
            "separated from the fixed cost"
        )
    elif (runs.generated == runs.kept).all():
        why = "all runs have n = m, so the cost of n cannot be separated from the cost of m"
    else:
        why = "n and m rise together, so neither cost can be separated from the fixed cost"
    return f"{why}; `experiment=cost_grid` measures it"
