"""`pods plan STUDY`: what a step costs, what a sweep will take, and which arm the machine favours.

A study is split into settings: runs on one machine whose configs differ only in what does not
change the cost of a rollout. Each setting has its own fit.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from pods.analysis.cost import text
from pods.analysis.cost.breakeven import break_even
from pods.analysis.cost.forecast import (
    fit_table,
    most_frequent_budget,
    overhead,
    predictions,
)
from pods.analysis.cost.model import (
    STEP,
    CostModel,
    coefficient,
    cost_model,
    per_run,
    residuals,
    why_not_identifiable,
)
from pods.analysis.cost.schedule import Job, simulate
from pods.analysis.cost.step_time import ONE_GPU, published
from pods.analysis.study import MEASURED, Study
from pods.analysis.tables import at_the_end
from pods.config.clock_model import ClockModel
from pods.config.schema import BudgetConfig

PUBLISHED_NM = ((16, 16), (64, 16), (64, 64))
SAME_ROLLOUT_COST = (
    "prompts_per_step",
    "prompts.",
    "group_filter.",
    "seed",
    "update.lr",
    "advantage.",
    "sampler.",
    "nm.",
)
"""Beginnings of the keys that may differ among the runs of one fit."""


@dataclass(frozen=True)
class PlanRequest:
    """The options of `pods plan`."""

    nm: tuple[tuple[int, int], ...] = ()
    """Sizes (n, m) to predict; empty: those of the runs."""
    seconds: float | None = None
    """Training clock per run; None: the study's budget, unless `steps` is given."""
    steps: int | None = None
    """Steps per run, instead of seconds."""
    seeds: int | None = None
    """Seeds of the planned sweep; None: as many as the study has."""
    slots: int = 1
    """Runs at a time."""
    tokens: int | None = None
    """Mean length of a completion, for lower bounds; None: the maximum."""
    gpus: tuple[int, ...] = (1, 8, 64, 512)
    """Sizes of the cluster to schedule a preset on."""
    failures: float = 0.0
    """Failures per GPU-hour."""
    restart: float = 10.0
    """Minutes until the GPUs of a failed job can be used again."""

    def check(self) -> None:
        """Check all values.

        Raises:
            ValueError: one of them is out of range.
        """
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds={self.seconds:g}: must be a number > 0")
        counts = {
            "steps": self.steps,
            "seeds": self.seeds,
            "jobs": self.slots,
            "tokens": self.tokens,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ValueError(f"{name}={count}: must be at least 1")
        for name, value in (("failures", self.failures), ("restart", self.restart)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}={value:g}: must be a number >= 0")
        for n, m in self.nm:
            if not 1 <= m <= n:
                raise ValueError(f"nm={n},{m}: must be N,M with 1 <= M <= N")


@dataclass(frozen=True)
class PlanReport:
    """The answer of `pods plan`."""

    lines: list[str]
    tables: dict[str, pd.DataFrame]
    """fit, residuals, predictions, sweep, arms: each with the setting in its first column."""


def plan(study: Study, request: PlanRequest) -> PlanReport:
    """Fit the costs of a study's runs, and predict.

    Raises:
        ValueError: the request is invalid.
    """
    request.check()
    reports = [
        _setting(name, cost_model(runs, steps), request, study)
        for name, runs, steps in settings(study)
    ]
    names = dict.fromkeys(name for report in reports for name in report.tables)
    return PlanReport(
        [line for report in reports for line in (*report.lines, "")][:-1],
        {n: pd.concat([r.tables[n] for r in reports], ignore_index=True) for n in names},
    )


def settings(study: Study) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield the name, runs (rows of `per_run`) and steps of each setting of a study."""
    table = per_run(study.runs, study.steps, at_the_end(study).reset_index())
    for name, runs in table.groupby(_settings(table, study), sort=False):
        yield str(name), runs, study.steps[study.steps.run.isin(runs.run)]


def fitted_clock(study: Study) -> ClockModel:
    """Return the prices of a step in a study's runs.

    Raises:
        ValueError: its runs are of several settings, or do not identify each price.
    """
    (name, runs, steps), *others = settings(study)
    if others:
        names = " | ".join([name, *(other for other, _, _ in others)])
        raise ValueError(f"must have runs of one setting, not of {names}")
    model = cost_model(runs, steps)
    if model.measured.empty:
        raise ValueError("must have runs with a time per step")
    base, per_rollout, per_kept = (coefficient(model, term)[0] for term in STEP)
    if math.isnan(base + per_rollout + per_kept):
        raise ValueError(f"must identify the prices: {why_not_identifiable(model)}")
    source = f"fitted to {len(model.steady)} runs of {study.name} on {name}"
    return ClockModel(f"fit of {study.name}", source, base, per_rollout, per_kept)


def plan_published(request: PlanRequest) -> PlanReport:
    """Do the same with the PODS authors' step times on one L40S: GSM8K, max-variance and GRPO.

    Raises:
        ValueError: the request is invalid.
    """
    request.check()
    request = replace(request, nm=request.nm or PUBLISHED_NM)
    name = "one L40S, the PODS authors' runs"
    report = _setting(name, cost_model(published(), pd.DataFrame()), request, None)
    notes = [line for line in ONE_GPU.read_text().splitlines() if line.startswith("#")]
    return PlanReport([*report.lines, "", *notes], report.tables)


def _settings(table: pd.DataFrame, study: Study) -> pd.Series:
    """Name each run's setting: its machine, and the keys of its series that change the cost.

    A modelled clock stands beside the machine.

    Where tokens were not counted, as in imported logs, a rule that makes completions longer would
    be taken for a cost of n: rules other than max_variance are settings of their own.
    """
    machine = table.machine if "machine" in table else pd.Series("", table.index)
    if study.clock != MEASURED:
        machine = machine + f", time {study.clock}"
    others = table.series.map(_cost_keys)
    if not study.seeded:
        same = table.rule.isin(["all", "max_variance", "max_variance_aliased"])
        others = others.where(same, "rule=" + table.rule)
    return machine.where(others == "", machine + ", " + others)


def _cost_keys(series: str) -> str:
    """Return the keys in a series' name that can change the cost of a rollout.

    >>> _cost_keys("pods 64→16, model.lora.targets=['a', 'b'], update.lr=0.1")
    "model.lora.targets=['a', 'b']"
    """
    keys = re.split(r", (?=[a-z_]+(?:\.[a-z_]+)*=)", series)[1:]
    return ", ".join(key for key in keys if not key.startswith(SAME_ROLLOUT_COST))


def _setting(name: str, model: CostModel, request: PlanRequest, study: Study | None) -> PlanReport:
    table = model.runs
    if model.measured.empty:
        return PlanReport([f"{name}: no run has a time per step"], {})
    sizes = model.measured[["n", "m"]].drop_duplicates().sort_values(["n", "m"])
    nm = list(dict.fromkeys(request.nm)) or [(int(n), int(m)) for n, m in sizes.to_numpy()]
    budget = most_frequent_budget(table)
    if request.seconds is not None or request.steps is not None:
        budget = BudgetConfig(train_seconds=request.seconds, max_steps=request.steps)
    tables = {
        "fit": fit_table(model),
        "residuals": residuals(model),
        "predictions": predictions(model, nm, budget),
    }
    seeds = request.seeds or int(table.seed.nunique())
    train_seconds = tables["predictions"].train_seconds.tolist()
    tables["sweep"] = _sweep(train_seconds, seeds, request.slots, overhead(table))
    pairs = tables["arms"] = break_even(model, study, nm)
    shown = pairs if request.nm else pairs[~pairs.outside.astype(bool)]
    lines = [
        *text.fit_lines(name, model, tables["fit"], tables["residuals"]),
        "",
        text.prediction_table(tables["predictions"]),
        text.sweep_line(tables["sweep"], len(nm), seeds, budget),
        "",
        *text.break_even_lines(shown),
        *text.largest_n_lines(model, nm),
    ]
    for frame in tables.values():
        frame.insert(0, "setting", name)
    return PlanReport(lines, tables)


def _sweep(train_seconds: list[float], seeds: int, slots: int, overhead: float) -> pd.DataFrame:
    """Schedule one run of each size, then the next seed of each, so many at a time.

    Returns:
        runs, slots, wall_seconds, slot_hours, overhead_seconds (per run; NaN: unknown, counted as
        0). NaN where the time of some run is unknown.
    """
    extra = 0.0 if math.isnan(overhead) else overhead
    hours = [(seconds + extra) / 3600 for seconds in train_seconds] * seeds
    known = not math.isnan(sum(hours))
    wall = simulate([Job("", h) for h in hours], slots).wall if known else math.nan
    row = {"runs": len(hours), "slots": slots, "wall_seconds": 3600 * wall}
    return pd.DataFrame([row | {"slot_hours": sum(hours), "overhead_seconds": overhead}])


def parse_nm(word: str) -> tuple[int, int]:
    """Read `N,M`.

    Raises:
        ValueError: the word is not two whole numbers.

    >>> parse_nm("64,16")
    (64, 16)
    """
    match = re.fullmatch(r"(\d+),(\d+)", word)
    if not match:
        raise ValueError(f"nm={word}: must be N,M such as 64,16")
    return int(match[1]), int(match[2])
