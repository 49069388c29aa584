"""A linear model of the seconds per step: fixed + b x rollouts generated + c x rollouts kept.

A step of B prompts generates B n rollouts and keeps B m of them, so that runs with different B
share one fit. Where prompts are resampled or skipped, the logged numbers of rollouts are used.
Costs that the measured (n, m) do not identify are NaN.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.numbers.curves import phase_columns
from pods_lab.plan.least_squares import Fit, fit

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
    if phases := phase_columns(steps):
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
    phases = {
        phase: fit(steady, f"seconds/{phase}", terms)
        for phase, terms in PHASES.items()
        if f"seconds/{phase}" in steady
    }
    return CostModel(runs, steady, fit(steady, "seconds", STEP), phases)


def coefficient(model: CostModel, term: str) -> tuple[float, float]:
    """Return seconds per unit of a term and their standard error.

    Where the total does not identify the term, the phases' coefficients are summed. The error of
    that sum is unknown (NaN), because the phases are fitted separately to the same runs.
    """
    value, stderr = model.total.at({term: 1.0})
    if np.isnan(value) and model.phases:
        return sum(phase.at({term: 1.0})[0] for phase in model.phases.values()), float("nan")
    return value, stderr


def predict(model: CostModel, n: float, m: float, prompts: int | None = None) -> Prediction:
    """Predict the cost of a step of (n, m), by default with the most frequent number of prompts."""
    size = prompts or model.prompts
    point = {"fixed": 1.0, "generated": float(size * n), "kept": float(size * m)}
    phases = {phase: line.at(point)[0] for phase, line in model.phases.items()}
    (seconds, stderr), source = model.total.at(point), "total"
    if np.isnan(seconds) and phases:
        seconds, stderr, source = sum(phases.values()), float("nan"), "phases"
    new_run = float(np.hypot(stderr, model.total.residual_sd))
    runs = model.steady
    outside = any(not runs[k].min() <= point[k] <= runs[k].max() for k in STEP[1:])
    return Prediction(seconds, new_run, phases, source, outside)


def on_devices(model: CostModel, n: float, m: float, devices: int) -> tuple[float, float]:
    """Predict the seconds of a step of (n, m) on several devices like that of the runs.

    The first number is with rollouts and update dealt to all of them, the second with sampling on
    some while the rest updates, by the best split. NaN: not identified.
    """
    if not {"generate", "update"} <= model.phases.keys():
        return np.nan, np.nan
    shares = [predict(model, n / k, m / k).phases for k in range(1, devices + 1)]
    sync = shares[0].get("sync", 0.0)
    alone = shares[0].get("reward", 0.0) + shares[0].get("select", 0.0)  # by the main process
    sampling, updating = np.array([(alone + of["generate"], of["update"]) for of in shares]).T
    apart = np.maximum(sampling[:-1], updating[-2::-1]).min()
    return sync + float(sampling[-1] + updating[-1]), sync + float(apart)


def residuals(model: CostModel) -> pd.DataFrame:
    """Compare the fit with the measurements, one row per (n, m, prompts, rule, arm).

    Returns:
        n, m, prompts, rule, arm, runs, seconds (mean measured), fitted, residual (measured -
        fitted, in seconds), percent (of fitted).
    """
    keys = ["n", "m", "prompts", "rule", "arm"]
    groups = model.runs.groupby(keys)
    table = groups[["generated", "kept", "seconds"]].mean().assign(runs=groups.size()).reset_index()
    sizes = zip(table.generated, table.kept, strict=True)
    table["fitted"] = [predict(model, *size, prompts=1).seconds for size in sizes]
    table["residual"] = table.seconds - table.fitted
    table["percent"] = 100 * table.residual / table.fitted
    return table[[*keys, "runs", "seconds", "fitted", "residual", "percent"]]


def why_not_identifiable(model: CostModel) -> str:
    """Explain why some coefficient of the total is NaN; return an empty string if none is."""
    if model.total.rank == len(STEP):
        return ""
    runs = model.steady
    constant = {
        letter: f"{letter} = {runs[letter].iloc[0]}"
        if runs[letter].nunique() == 1
        else f"{runs[rollouts].iloc[0]:g} rollouts {rollouts} per step"
        for letter, rollouts in (("n", "generated"), ("m", "kept"))
        if runs[rollouts].nunique() == 1
    }
    costs = " and ".join(f"the cost of {letter}" for letter in constant)
    if constant:
        why = f"all runs have {' and '.join(constant.values())}, so {costs} cannot be separated "
        why += "from the fixed cost"
    elif (runs.generated == runs.kept).all():
        why = "all runs have n = m, so the cost of n cannot be separated from the cost of m"
    else:
        why = "n and m rise together, so neither cost can be separated from the fixed cost"
    return f"{why}; `experiment=cost_grid` measures it"
