"""Predictions from a fitted cost model: steps and tokens within a budget, overhead of a run."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from pods.analysis.cost.model import TOKENS, CostModel, coefficient, predict
from pods.analysis.study import MEASURED
from pods.config.schema import BudgetConfig

EXPENSIVE_STEPS = 2.0  # steps of m→m that a step of the largest affordable n costs


def fit_table(model: CostModel) -> pd.DataFrame:
    """List the fits, one row each.

    Returns:
        what, by (the terms); fixed, generated, kept, token: seconds fixed, per rollout generated,
        per rollout kept and per token, each with its `_stderr`; r2, residual_sd, rows, cells
        (distinct combinations of the terms). NaN: not identifiable, or not a term.
    """
    fits = {"step": model.total, **model.phases}
    fits |= {f"{phase} by tokens": line for phase, line in model.tokens.items()}
    rows = []
    for what, line in fits.items():
        row: dict[str, object] = {"what": what, "by": " + ".join(line.terms)}
        for term in line.terms:
            name = "token" if term in TOKENS.values() else term
            row[name], row[f"{name}_stderr"] = line.at({term: 1.0})
        row |= {"r2": line.r2, "residual_sd": line.residual_sd}
        rows.append(row | {"rows": line.rows, "cells": line.combinations})
    terms = [
        f"{n}{end}" for n in ("fixed", "generated", "kept", "token") for end in ("", "_stderr")
    ]
    columns = ["what", "by", *terms, "r2", "residual_sd", "rows", "cells"]
    return pd.DataFrame(rows).reindex(columns=columns)


def predictions(
    model: CostModel, sizes: Sequence[tuple[int, int]], budget: BudgetConfig
) -> pd.DataFrame:
    """Predict the cost of a step and of a run, one row per (n, m).

    Returns:
        n, m, seconds, stderr, source, outside, seconds/PHASE, tokens per step, and steps and
        train_seconds of a run under the budget. NaN: not identifiable.
    """
    rows = []
    for n, m in sizes:
        step = predict(model, n, m)
        steps = steps_within(budget, step.seconds)
        train_seconds = steps * step.seconds  # with the last step's overrun
        if math.isnan(step.seconds) and budget.max_steps is None:
            train_seconds = budget.train_seconds or math.nan
        rows.append(
            {
                "n": n,
                "m": m,
                "seconds": step.seconds,
                "stderr": step.stderr,
                "source": step.source,
                "outside": step.outside,
                **{f"seconds/{phase}": value for phase, value in step.phases.items()},
                **_tokens(model, n, m),
                "steps": steps,
                "train_seconds": train_seconds,
            }
        )
    return pd.DataFrame(rows)


def steps_within(budget: BudgetConfig, step_seconds: float) -> float:
    """Return the steps of a run, which checks its budget after each of them; NaN: unknown."""
    limits = [] if budget.max_steps is None else [float(budget.max_steps)]
    if budget.train_seconds is not None:
        limits.append(
            math.ceil(budget.train_seconds / step_seconds) if step_seconds > 0 else math.nan
        )
    return float(np.min(limits)) if limits else math.nan


def most_frequent_budget(runs: pd.DataFrame) -> BudgetConfig:
    """Return the budget of most runs."""
    seconds, steps = (
        runs[name].dropna().mode() if name in runs else pd.Series(dtype=float)
        for name in ("budget_seconds", "max_steps")
    )
    return BudgetConfig(
        train_seconds=float(seconds.iloc[0]) if len(seconds) else None,
        max_steps=int(steps.iloc[0]) if len(steps) else None,
    )


def _tokens(model: CostModel, n: int, m: int) -> dict[str, float]:
    """Return tokens per step: of runs with this (n, m), or else scaled from all runs' rollouts."""
    runs, tokens = model.steady, {}
    same = runs[(runs.n == n) & (runs.m == m) & (runs.prompts == model.prompts)]
    for column, rollouts, size in zip(TOKENS.values(), ("generated", "kept"), (n, m), strict=True):
        if column in runs:
            scaled = (runs[column] / runs[rollouts]).mean() * size * model.prompts
            tokens[column] = float(same[column].mean() if len(same) else scaled)
    return tokens


def overhead(runs: pd.DataFrame) -> float:
    """Return the median seconds of complete runs outside their training clock; NaN: unknown.

    A modelled clock says nothing about them.
    """
    modelled = "clock" in runs and (runs.clock != MEASURED).any()
    if modelled or not {"wall_seconds", "train_seconds"} <= set(runs):
        return float("nan")
    complete = runs[runs.complete.astype(bool)]
    spent = complete.wall_seconds.astype(float) - complete.train_seconds.astype(float)
    return float(spent.median())


def largest_n(model: CostModel, m: int) -> float:
    """Return the n at which a step of n→m costs `EXPENSIVE_STEPS` steps of m→m; NaN: unknown.

    seconds(n, m) = seconds(m, m) + b B (n - m), with b the cost of one generated rollout.
    """
    each, base = coefficient(model, "generated")[0], predict(model, m, m).seconds
    if not (each > 0 and base > 0):
        return math.nan
    return m + (EXPENSIVE_STEPS - 1) * base / (each * model.prompts)
