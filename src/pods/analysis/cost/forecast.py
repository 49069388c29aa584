"""What a fitted cost model foretells: steps within a budget, tokens, the time of a whole sweep."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.cost.model import TOKENS, CostModel, coefficient, predict

Cell = tuple[int, int]


@dataclass(frozen=True)
class Budget:
    """What ends a run, whichever comes first; None: that does not."""

    seconds: float | None
    steps: int | None


@dataclass(frozen=True)
class Sweep:
    """cells x seeds runs, so many at a time."""

    runs: int
    slots: int
    wall_seconds: float
    """Until the last run ends, if each starts as soon as a slot is free."""
    slot_hours: float
    """Of all runs together; a slot is a GPU, or the cores of one job."""
    overhead_seconds: float
    """Of one run, in them: start, checkpoints, evaluation; NaN: not known, and not in them."""


def fit_table(model: CostModel) -> pd.DataFrame:
    """The fits as rows: seconds fixed, and a rollout generated, a rollout kept or a token.

    Returns:
        what, by (the terms), fixed, generated, kept, token, each with its `_stderr`, and r2,
        residual_sd, rows, cells; NaN: cannot be told, or is no term.
    """
    fits = {"step": model.total, **model.phases}
    fits |= {f"{phase} by tokens": line for phase, line in model.tokens.items()}
    rows = []
    for what, line in fits.items():
        row: dict[str, object] = {"what": what, "by": " + ".join(line.terms)}
        for term in line.terms:
            name = "token" if term in TOKENS.values() else term
            row[name], row[f"{name}_stderr"] = line.at({term: 1.0})
        rows.append(row | {"r2": line.r2, "residual_sd": line.residual_sd, "rows": line.rows,
                           "cells": line.cells})  # fmt: skip
    names = ("fixed", "generated", "kept", "token")
    columns = ["what", "by", *(f"{n}{end}" for n in names for end in ("", "_stderr")),
               "r2", "residual_sd", "rows", "cells"]  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=columns)


def predictions(model: CostModel, cells: Sequence[Cell], budget: Budget) -> pd.DataFrame:
    """A row an (n, m): what a step and a run cost.

    Returns:
        n, m, seconds and its stderr, source, outside, seconds/PHASE, tokens a step, and a run's
        steps and train_seconds under the budget; NaN: cannot be told.
    """
    rows = []
    for n, m in cells:
        found = predict(model, n, m)
        steps, train_seconds = _run(found.seconds, budget)
        rows.append({
            "n": n, "m": m, "seconds": found.seconds, "stderr": found.stderr,
            "source": found.source, "outside": found.outside,
            **{f"seconds/{phase}": value for phase, value in found.phases.items()},
            **_tokens(model, n, m), "steps": steps, "train_seconds": train_seconds,
        })  # fmt: skip
    return pd.DataFrame(rows)


def budget_of(runs: pd.DataFrame, seconds: float | None, steps: int | None) -> Budget:
    """As asked, or else that of most of the runs."""
    if seconds is not None or steps is not None:
        return Budget(seconds, steps)
    theirs, their_steps = (
        runs[name].dropna().mode() if name in runs else pd.Series(dtype=float)
        for name in ("budget_seconds", "max_steps")
    )
    return Budget(
        float(theirs.iloc[0]) if len(theirs) else None,
        int(their_steps.iloc[0]) if len(their_steps) else None,
    )


def _run(seconds: float, budget: Budget) -> tuple[float, float]:
    """Steps and training seconds of a run; the budget is looked at after each step."""
    limits = [] if budget.steps is None else [float(budget.steps)]
    if budget.seconds is not None:
        limits.append(math.ceil(budget.seconds / seconds) if seconds > 0 else math.nan)
    steps = float(np.min(limits)) if limits else math.nan
    if math.isnan(seconds) and budget.steps is None and budget.seconds is not None:
        return steps, budget.seconds  # how many steps is not known, when they end is
    return steps, steps * seconds


def _tokens(model: CostModel, n: int, m: int) -> dict[str, float]:
    """Tokens a step: of the runs with these n and m, or else of all runs a rollout."""
    runs, found = model.steady, {}
    own = runs[(runs.n == n) & (runs.m == m) & (runs.prompts == model.prompts)]
    for column, rollouts, size in zip(TOKENS.values(), ("generated", "kept"), (n, m), strict=True):
        if column in runs:
            each = (runs[column] / runs[rollouts]).mean() * size * model.prompts
            found[column] = float(own[column].mean() if len(own) else each)
    return found


def overhead(runs: pd.DataFrame) -> float:
    """Seconds of a run outside of its training clock: median over complete runs; NaN: unknown."""
    if not {"wall_seconds", "train_seconds"} <= set(runs):
        return float("nan")
    whole = runs[runs.complete.astype(bool)]
    spent = (whole.wall_seconds.astype(float) - whole.train_seconds.astype(float)).dropna()
    return float(spent.median()) if len(spent) else float("nan")


def sweep(train_seconds: Sequence[float], seeds: int, slots: int, each: float) -> Sweep:
    """What it takes to run every cell with every seed, in that order, a seed of all cells first.

    Args:
        train_seconds: of one run of each cell.
        seeds: runs of each cell.
        slots: runs at a time.
        each: overhead of a run; NaN counts as none.

    >>> found = sweep([10.0, 30.0], seeds=2, slots=2, each=5.0)  # slots: 15 + 15 + 35, and 35
    >>> found.wall_seconds, round(found.slot_hours * 3600)
    (65.0, 100)
    """
    durations = [s + (0.0 if math.isnan(each) else each) for s in train_seconds] * seeds
    free = [0.0] * slots
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return Sweep(len(durations), slots, max(free), sum(durations) / 3600, each)


def largest_n(model: CostModel, m: int, steps: float = 2.0) -> float:
    """The n at which a step of n→m costs so many steps of m→m; NaN where that cannot be told.

    seconds(n, m) = seconds(m, m) + b B (n - m), with b the cost of a rollout generated.
    """
    each, base = coefficient(model, "generated")[0], predict(model, m, m).seconds
    return m + (steps - 1) * base / (each * model.prompts) if each > 0 and base > 0 else np.nan
