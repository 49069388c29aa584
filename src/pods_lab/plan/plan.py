"""What a step of a study costs, by n and m, and which arm the machine favours."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from pods.analysis.loading.study import Study
from pods.config.parse import ConfigError
from pods_lab.plan import text
from pods_lab.plan.breakeven import break_even
from pods_lab.plan.model import STEP, CostModel, cost_model, on_devices, predict, residuals
from pods_lab.plan.settings import AUTHORS, authors_runs, settings


@dataclass(frozen=True)
class PlanRequest:
    """The options of `pods plan`: sizes (n, m) to predict, and the training clock per run.

    Without them they are those of the runs, and that of most runs.
    """

    nm: tuple[tuple[int, int], ...] = ()
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise a ConfigError if a value is out of range."""
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ConfigError("--seconds", self.seconds, "must be a number > 0")


@dataclass(frozen=True)
class PlanReport:
    """The answer; tables are fit, residuals, predictions and arms, with the setting first."""

    lines: list[str]
    tables: dict[str, pd.DataFrame]


def plan(study: Study, request: PlanRequest) -> PlanReport:
    """Fit the costs of a study's runs, and predict."""
    reports = [_setting(name, cost_model(runs), request, study) for name, runs in settings(study)]
    names = dict.fromkeys(name for report in reports for name in report.tables)
    return PlanReport(
        [line for report in reports for line in (*report.lines, "")][:-1],
        {n: pd.concat([r.tables[n] for r in reports], ignore_index=True) for n in names},
    )


def plan_authors(request: PlanRequest) -> PlanReport:
    """Do the same with the PODS authors' step times on one L40S: GSM8K, max-variance and GRPO."""
    request = replace(request, nm=request.nm or ((16, 16), (64, 16), (64, 64)))
    report = _setting("one L40S, the PODS authors' runs", cost_model(authors_runs()), request, None)
    notes = [line for line in AUTHORS.read_text().splitlines() if line.startswith("#")]
    return PlanReport([*report.lines, "", *notes], report.tables)


def _setting(name: str, model: CostModel, request: PlanRequest, study: Study | None) -> PlanReport:
    runs = model.runs
    if runs.empty:
        return PlanReport([f"{name}: no run has a time per step"], {})
    sizes = runs[["n", "m"]].drop_duplicates().sort_values(["n", "m"])
    nm = list(dict.fromkeys(request.nm)) or [(int(n), int(m)) for n, m in sizes.to_numpy()]
    budgets = runs.reindex(columns=["budget_seconds"]).budget_seconds.mode()
    seconds = request.seconds or float(next(iter(budgets), math.nan))  # NaN: they end by steps
    predicted, pairs = predictions(model, nm, seconds), break_even(model, study, nm)
    tables = {"fit": fit_table(model), "residuals": residuals(model)}
    tables |= {"predictions": predicted, "arms": pairs}
    shown = pairs if request.nm else pairs[~pairs.outside.astype(bool)]
    lines = [*text.fit_lines(name, model, tables["fit"], tables["residuals"]), ""]
    lines += [text.prediction_table(predicted), "", *text.arm_lines(shown)]
    for frame in tables.values():
        frame.insert(0, "setting", name)
    return PlanReport(lines, tables)


def fit_table(model: CostModel) -> pd.DataFrame:
    """List the fits, one row each.

    Returns:
        what; fixed, generated, kept: seconds fixed, per rollout generated and per rollout kept,
        each with its `_stderr`; r2, residual_sd, rows, cells (distinct combinations of the terms).
        NaN: not identifiable, or not a term.
    """
    rows = []
    for what, line in {"step": model.total, **model.phases}.items():
        row: dict[str, object] = {"what": what}
        for term in STEP:
            values = line.at({term: 1.0}) if term in line.terms else (math.nan, math.nan)
            row[term], row[f"{term}_stderr"] = values
        row |= {"r2": line.r2, "residual_sd": line.residual_sd}
        rows.append(row | {"rows": line.rows, "cells": line.combinations})
    return pd.DataFrame(rows)


def predictions(
    model: CostModel, sizes: Sequence[tuple[int, int]], budget_seconds: float
) -> pd.DataFrame:
    """Predict the cost of a step and of a run, one row per (n, m).

    Returns:
        n, m, seconds, stderr, source, outside, seconds/PHASE, together/D, apart/D (`on_devices`),
        steps, train_seconds of a run under the budget, checked after each step. NaN: not known.
    """
    rows = []
    for n, m in sizes:
        step = predict(model, n, m)
        share = budget_seconds / step.seconds if step.seconds > 0 else math.nan
        steps = math.nan if math.isnan(share) else math.ceil(share)
        row: dict[str, object] = {"n": n, "m": m, "seconds": step.seconds, "stderr": step.stderr}
        row |= {"source": step.source, "outside": step.outside}
        row |= {f"seconds/{phase}": value for phase, value in step.phases.items()}
        row |= {"steps": steps, "train_seconds": steps * step.seconds}
        for count in (2, 4, 8):
            row[f"together/{count}"], row[f"apart/{count}"] = on_devices(model, n, m, count)
        rows.append(row)
    return pd.DataFrame(rows)


def parse_nm(word: str) -> tuple[int, int]:
    """Read `N,M`; a ConfigError says that the word is not two numbers, the second the smaller.

    >>> parse_nm("64,16")
    (64, 16)
    """
    match = re.fullmatch(r"(\d+),(\d+)", word)
    if not match or not 1 <= int(match[2]) <= int(match[1]):
        raise ConfigError("--nm", word, "must be N,M with 1 <= M <= N, such as 64,16")
    return int(match[1]), int(match[2])
