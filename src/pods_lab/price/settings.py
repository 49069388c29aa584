"""Settings: the runs of a study on one machine whose configs give a rollout the same cost."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.loading.study import Study
from pods.analysis.numbers.tables import at_the_end
from pods_lab.price.model import per_run

AUTHORS = Path(__file__).with_name("authors_step_times.csv")
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


def settings(study: Study) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the runs (rows of `per_run`) of each setting of a study.

    The name has the machine and the keys of the series that change the cost.
    Where tokens were not counted, as in imported logs, a rule that makes completions longer would
    be taken for a cost of n: rules other than max_variance are settings of their own.
    """
    table = per_run(study.runs, study.steps, at_the_end(study).reset_index())
    machine = table.machine if "machine" in table else pd.Series("", table.index)
    keys = table.series.map(_cost_keys)
    if not study.seeded:
        is_variance = table.rule.isin(["all", "max_variance", "max_variance_aliased"])
        keys = keys.where(is_variance, "rule=" + table.rule)
    names = machine.where(keys == "", machine + ", " + keys)
    for name, runs in table.groupby(names, sort=False):
        yield str(name), runs


def _cost_keys(series: str) -> str:
    """Return the keys in a series' name that can change the cost of a rollout.

    >>> _cost_keys("pods 64→16, task.reward=['a', 'b'], update.lr=0.1")
    "task.reward=['a', 'b']"
    """
    keys = re.split(r", (?=[a-z_]+(?:[. ][a-z_]+)*=)", series)[1:]
    return ", ".join(key for key in keys if not key.startswith(SAME_ROLLOUT_COST))


def authors_runs() -> pd.DataFrame:
    """Return the authors' GSM8K step times of max-variance and GRPO, in the form of `per_run`.

    Max-reward, whose completions grow long, and MATH, another task, belong to no common fit.
    """
    rows = pd.read_csv(AUTHORS, comment="#")
    rows = rows[(rows.setting == "GSM8K") & rows["rule"].isin(["all", "max_variance"])]
    arm = np.where(rows["rule"] == "all", "grpo", "pods")
    label = [f"{a} {n}→{m}" for a, n, m in zip(arm, rows.n, rows.m, strict=True)]
    table = rows.assign(
        run=label,
        series=label,
        arm=arm,
        prompts=1,
        seed=0,
        generated=rows.n,
        kept=rows.m,
        complete=True,
        seconds=rows.seconds_per_step,
        budget_seconds=6 * 3600.0,
    )
    table["seconds/generate"] = rows.inference_seconds
    table["seconds/update"] = rows.seconds_per_step - rows.inference_seconds
    return table
