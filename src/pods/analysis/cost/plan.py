"""`pods plan`: what a step costs here, what a sweep will, and which arm that favours, in words.

A study is read as settings: runs on one machine whose configs differ in nothing that changes what
a rollout costs. Each setting has a fit of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.cost.arm_words import about_arms
from pods.analysis.cost.breakeven import Curves
from pods.analysis.cost.forecast import (
    Cell,
    budget_of,
    fit_table,
    overhead,
    predictions,
    sweep,
)
from pods.analysis.cost.model import cost_model, per_run, residuals
from pods.analysis.cost.plan_words import about_cells, about_fit, about_sweep
from pods.analysis.load import Study
from pods.analysis.outcomes import run_curves

PUBLISHED = Path(__file__).with_name("published_step_times.csv")
PUBLISHED_SECONDS = 6 * 3600.0
PUBLISHED_CELLS = ((16, 16), (64, 16), (64, 64))
FREE = ("prompts_per_step", "prompts.", "group_filter.", "seed", "update.lr", "advantage.",
        "sampler.", "nm.")  # fmt: skip
"""Keys that may differ between the runs of one fit."""


@dataclass(frozen=True)
class Ask:
    """What the user wants to know."""

    cells: tuple[Cell, ...] = ()
    """(n, m); none: those of the runs."""
    seconds: float | None = None
    """Training seconds a run; None: the study's, unless steps are given."""
    steps: int | None = None
    seeds: int | None = None
    """Of the planned sweep; None: as many as the study has."""
    slots: int = 1
    """Runs at a time."""


@dataclass(frozen=True)
class Plan:
    """What there is to say."""

    lines: list[str]
    tables: dict[str, pd.DataFrame]
    """fit, residuals, predictions, sweep, arms: each with the setting in its first column."""


def plan(study: Study, ask: Ask) -> Plan:
    """Fit what the study's runs cost, and foretell.

    Raises:
        ValueError: something that was asked for cannot be.
    """
    _check(ask)
    table = per_run(study.runs, study.steps, study.evaluations)
    parts = [
        _of_setting(name, of, study.steps[study.steps.run.isin(of.run)], ask,
                    partial(run_curves, study))
        for name, of in table.groupby(_settings(table), sort=False)
    ]  # fmt: skip
    return _together(parts)


def plan_published(ask: Ask) -> Plan:
    """The same from the PODS authors' step times on one L40S: GSM8K, max-variance and GRPO."""
    _check(ask)
    rows, cells = published(), ask.cells or PUBLISHED_CELLS
    found = _of_setting("one L40S, the PODS authors' runs", rows, pd.DataFrame(),
                        replace(ask, cells=cells), lambda series: [])  # fmt: skip
    timed = rows.dropna(subset="seconds")
    untimed = rows[rows.seconds.isna()].series.str.split().str[-1]
    shares = (timed["seconds/update"] / timed.seconds).to_numpy()
    intro = [
        f"GSM8K by GRPO and max-variance: {len(timed)} (n, m), a row each, the mean of 10 runs;",
        f"{', '.join(untimed)} have inference seconds alone and enter the fit of generate alone.",
        "generate: what the authors time as inference (generation, rewards, log-probs of the",
        f"reference), in 4 to 10 runs each; update: the rest, {100 * shares.min():.0f} to "
        f"{100 * shares.max():.0f} % of a step.",
    ]
    return Plan([*intro, *found.lines], found.tables)


def published() -> pd.DataFrame:
    """The authors' GSM8K rows of max-variance and GRPO, as `per_run` would give them.

    Max-reward's completions grow long, and MATH is another task: they are in the file alone.
    """
    rows = pd.read_csv(PUBLISHED, comment="#")
    rows = rows[(rows.setting == "GSM8K") & rows["rule"].isin(["all", "max_variance"])]
    rows = rows.reset_index(drop=True)
    arm = np.where(rows["rule"] == "all", "grpo", "pods")
    label = [f"{a} {n}→{m}" for a, n, m in zip(arm, rows.n, rows.m, strict=True)]
    return rows.assign(
        run=label, series=label, arm=arm, prompts=1, seed=0, generated=rows.n, kept=rows.m,
        complete=True, seconds=rows.seconds_per_step,
        budget_seconds=PUBLISHED_SECONDS,
        **{"seconds/generate": rows.inference_seconds,
           "seconds/update": rows.seconds_per_step - rows.inference_seconds},
    )  # fmt: skip


def _check(ask: Ask) -> None:
    if ask.seconds is not None and not 0 < ask.seconds < np.inf:
        raise ValueError(f"seconds={ask.seconds:g}: must be a number > 0")
    for name, value in (("steps", ask.steps), ("seeds", ask.seeds), ("jobs", ask.slots)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: must be at least 1")
    for n, m in ask.cells:
        if not 1 <= m <= n:
            raise ValueError(f"nm={n},{m}: must be N,M with 1 <= M <= N")


def _settings(table: pd.DataFrame) -> pd.Series:
    """The machine of each run, and what its series' name says beyond arm, n, m and `FREE` keys."""
    machine = table.machine if "machine" in table else pd.Series("", table.index)
    others = table.series.map(_costly)
    return machine.where(others == "", machine + ", " + others)


def _costly(series: str) -> str:
    """Keys in a series' name that can change what a rollout costs.

    >>> _costly("pods 64→16, model.lora.targets=['a', 'b'], update.lr=0.1")
    "model.lora.targets=['a', 'b']"
    """
    keys = re.split(r", (?=[a-z_]+(?:\.[a-z_]+)*=)", series)[1:]
    return ", ".join(key for key in keys if not key.startswith(FREE))


def _of_setting(
    name: object, table: pd.DataFrame, steps: pd.DataFrame, ask: Ask, curves_of: Curves
) -> Plan:
    model = cost_model(table, steps)
    if not len(model.measured):
        return Plan([f"{name}: no run has a time of a step"], {})
    asked = list(dict.fromkeys(ask.cells))
    here = model.measured[["n", "m"]].drop_duplicates().sort_values(["n", "m"])
    cells = asked or [(int(n), int(m)) for n, m in here.itertuples(index=False)]
    budget = budget_of(table, ask.seconds, ask.steps)
    foretold = predictions(model, cells, budget)
    seeds = ask.seeds or int(table.seed.nunique())
    found = sweep(foretold.train_seconds.tolist(), seeds, ask.slots, overhead(table))
    fits, misfits = fit_table(model), residuals(model)
    arms, words = about_arms(model, curves_of, cells, bool(asked))
    lines = [
        *about_fit(str(name), model, fits, misfits),
        "",
        *about_cells(foretold),
        *about_sweep(found, len(cells), seeds, budget),
        "",
        *words,
    ]
    tables = {"fit": fits, "residuals": misfits, "predictions": foretold,
              "sweep": pd.DataFrame([vars(found)]), "arms": arms}  # fmt: skip
    for frame in tables.values():
        frame.insert(0, "setting", str(name))
    return Plan(lines, tables)


def _together(parts: Sequence[Plan]) -> Plan:
    lines = [line for part in parts for line in (*part.lines, "")][:-1]
    names = dict.fromkeys(name for part in parts for name in part.tables)
    return Plan(lines, {n: pd.concat([p.tables[n] for p in parts], ignore_index=True)
                        for n in names})  # fmt: skip


def cell(text: str) -> Cell:
    """Read `N,M`.

    Raises:
        ValueError: it is not two whole numbers.

    >>> cell("64,16")
    (64, 16)
    """
    found = re.fullmatch(r"(\d+),(\d+)", text)
    if not found:
        raise ValueError(f"nm={text}: must be N,M such as 64,16")
    return int(found[1]), int(found[2])
