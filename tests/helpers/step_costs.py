"""Runs whose steps cost what known constants say."""

import numpy as np
import pandas as pd

from pods.analysis.loading.study import Study

FIXED, EACH_GENERATED, EACH_KEPT = 0.020, 0.0003, 0.0005  # seconds per step and per rollout
GRID = [(16, 4), (16, 16), (64, 4), (64, 16), (64, 64), (128, 64)]
EMPTY = ["series", "seed", "run", "step", "train_seconds", "accuracy"]


def runs_of(sizes, seeds=(0,), prompts=2, **more) -> pd.DataFrame:
    rows = [(n, m, seed) for n, m in sizes for seed in seeds]
    table = pd.DataFrame(rows, columns=["n", "m", "seed"]).assign(prompts=prompts)
    names = [f"{n}-{m}-{seed}-{prompts}" for n, m, seed in rows]
    series = [f"pods {n}→{m}" for n, m, _ in rows]
    rule = np.where(table.n == table.m, "all", "max_variance")
    table = table.assign(run=names, series=series, arm="pods", rule=rule, machine="A CPU")
    return table.assign(complete=True, **more)


def steps_of(runs: pd.DataFrame, steps=3, noise=0.0) -> pd.DataFrame:
    """Log steps that cost what the constants say, ± noise in turn."""
    generated, kept = runs.prompts * runs.n, runs.prompts * runs.m
    table = runs[["series", "seed", "run"]].copy()
    scatter = noise * (-1) ** runs.index
    table["seconds/generate"] = 0.015 + EACH_GENERATED * generated + scatter
    table["seconds/update"] = 0.005 + EACH_KEPT * kept
    return table.loc[table.index.repeat(steps)].assign(step=[*range(1, steps + 1)] * len(runs))


def study_of(runs, steps, evaluations=None) -> Study:
    empty = pd.DataFrame(columns=EMPTY)
    return Study(
        name="a study", runs=runs, evaluations=empty if evaluations is None else evaluations,
        steps=steps, machines=["A CPU"], budget="30 s", missing=[], inconsistencies=[],
        order=[*runs.series.unique()])  # fmt: skip
