"""What a step of a study costs, by n and m, and which arm the machine favours."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from pods.analysis.loading.study import Study
from pods.config.parse import ConfigError
from pods_lab.plan import text
from pods_lab.plan.breakeven import break_even
from pods_lab.plan.model import STEP, CostModel, Pair, cost_model, on_devices, predict, residuals
from pods_lab.plan.settings import AUTHORS, authors_runs, settings


@dataclass(frozen=True)
class PlanReport:
    """The answer; tables are fit, residuals, predictions and arms, with the setting first."""

    lines: list[str]
    tables: dict[str, pd.DataFrame]


def plan(study: Study, nm: Sequence[Pair] = (), seconds: float | None = None) -> PlanReport:
    """Fit the costs of a study's runs, and predict those of sizes (n, m) and of runs.

    Without `nm` the sizes are those of the runs, without `seconds` the training clock is that of
    most runs. `ConfigError`: the seconds are out of range.
    """
    reports = [_setting(name, runs, study, nm, seconds) for name, runs in settings(study)]
    tables = [report.tables for report in reports if report.tables]
    return PlanReport(
        [line for report in reports for line in (*report.lines, "")][:-1],
        {n: pd.concat([of[n] for of in tables], ignore_index=True) for n in next(iter(tables), ())},
    )


def plan_authors(nm: Sequence[Pair] = (), seconds: float | None = None) -> PlanReport:
    """Do the same with the PODS authors' step times on one L40S: GSM8K, max-variance and GRPO."""
    name, nm = "one L40S, the PODS authors' runs", nm or ((16, 16), (64, 16), (64, 64))
    report = _setting(name, authors_runs(), None, nm, seconds)
    notes = [line for line in AUTHORS.read_text().splitlines() if line.startswith("#")]
    return PlanReport([*report.lines, "", *notes], report.tables)


def _setting(
    name: str, table: pd.DataFrame, study: Study | None, nm: Sequence[Pair], seconds: float | None
) -> PlanReport:
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError("--seconds", seconds, "must be a number > 0")
    model = cost_model(table)
    runs = model.runs
    if runs.empty:
        return PlanReport([f"{name}: no run has a time per step"], {})
    measured = runs[["n", "m"]].drop_duplicates().sort_values(["n", "m"])
    sizes = list(dict.fromkeys(nm)) or [(int(n), int(m)) for n, m in measured.to_numpy()]
    budgets = runs.reindex(columns=["budget_seconds"]).budget_seconds.mode()
    seconds = seconds or float(next(iter(budgets), math.nan))  # NaN: they end by steps
    predicted, pairs = predictions(model, sizes, seconds), break_even(model, study, sizes)
    tables = {"fit": fit_table(model), "residuals": residuals(model)}
    tables |= {"predictions": predicted, "arms": pairs}
    shown = pairs if nm else pairs[~pairs.outside.astype(bool)]
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


def predictions(model: CostModel, sizes: Sequence[Pair], budget_seconds: float) -> pd.DataFrame:
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


def parse_nm(word: str) -> Pair:
    """Read `N,M`; a ConfigError says that the word is not two numbers, the second the smaller.

    >>> parse_nm("64,16")
    (64, 16)
    """
    match = re.fullmatch(r"(\d+),(\d+)", word)
    if not match or not 1 <= int(match[2]) <= int(match[1]):
        raise ConfigError("--nm", word, "must be N,M with 1 <= M <= N, such as 64,16")
    return int(match[1]), int(match[2])
