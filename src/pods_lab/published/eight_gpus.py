"""Read the PODS authors' runs on 8 GPUs: W&B exports with one row per evaluation.

Column 0 is the time; each run has columns for its `_step` and for one metric.
Source: github.com/YixuanEvenXu/pods, `results/{h100s,a100s}-{acc,length}.csv`; its
`scripts/plot-a100s.py` draws them.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pods.analysis.loading.imports import Imported
from pods_lab.audit.tables import table
from pods_lab.published.tables import Row, collect, describe

METRICS = {  # for each of our columns the suffix of the file's name, and W&B's metric
    "accuracy": ("acc", "eval/rewards/accuracy_reward/mean"),
    "length": ("length", "eval/completions/mean_length"),
}
QUESTIONS = 1319
UNTIL = 1800.0  # end of the authors' time axis
RUN = re.compile(
    r"\w+-s(?P<seed>\d+)-p(?P<prompts>[1-9]\d*)-n(?P<n>[1-9]\d*)-m(?P<m>[1-9]\d*)"
    r"-ga(?P<groups>[1-9]\d*)"
)
TIMES = ["train_seconds", "wandb_step"]


@dataclass(frozen=True)
class Cluster:
    """Eight GPUs, and how the runs on them were evaluated."""

    prefix: str  # the GPU, with which the names of its series begin
    per_evaluation: int  # W&B steps that one takes: 4 per batch of the test set, and 1
    answers: int  # in a reported mean: the test set, padded to whole batches


CLUSTERS = {"h100s": Cluster("H100", 5, 2048), "a100s": Cluster("A100", 45, 1408)}


def read_exports(folder: Path, family: str) -> Imported:
    """Read the runs of one cluster (a key of `CLUSTERS`); what is irregular is left out and named.

    `ValueError`: one of the two files is missing or is no such export; the message names it.
    """
    cluster = CLUSTERS[family]
    paths = {key: folder / f"{family}-{suffix}.csv" for key, (suffix, _) in METRICS.items()}
    exports = {path.name: _read_export(path, key) for key, path in paths.items()}
    exported = {run for points in exports.values() for run in points}
    names = filter(None, map(RUN.fullmatch, exported))
    runs, missing = [], []
    for name in sorted(names, key=lambda name: (int(name["n"]), int(name["seed"]), name[0])):
        lacking = [file for file, points in exports.items() if name[0] not in points]
        missing += [f"{name[0]}: {file} has no column of it" for file in lacking]
        rows: list[Row] = []
        if not lacking:
            accuracy, length = (points[name[0]] for points in exports.values())
            points = accuracy.merge(length, on=TIMES)
            rows = _evaluations(points, int(name["groups"]), cluster.per_evaluation)
        all_kept = name["n"] == name["m"]
        arm, rule = ("grpo_ga", "all") if all_kept else ("pods", "max_variance_aliased")
        machine, groups = f"8 x NVIDIA {cluster.prefix}", f", groups={name['groups']}"
        runs.append((describe(name, cluster.prefix, arm, groups, rule, machine), rows))
    return collect(
        runs,
        list(paths.values()),
        missing=missing,
        budget="40 min",
        until=UNTIL,
        note="logs of the PODS authors: seconds are W&B's eval/time, without evaluation; steps are "
        f"computed from W&B's _step; one sampled pass, a mean over {cluster.answers} answers (the "
        f"{QUESTIONS} questions, padded), right only in LaTeX or boxed form; no point at 0 s; rule "
        "max_variance_aliased: their 8-GPU code does not compute max_variance",
    )


def _read_export(path: Path, key: str) -> dict[str, pd.DataFrame]:
    """Read each run's train_seconds, wandb_step and value; a ValueError names what is no export."""
    names = ["eval/time", "_step", METRICS[key][1]]
    try:
        logs = {log.name.removeprefix("data/"): log for log in table(path)}
        for run, log in logs.items():
            if not RUN.fullmatch(run) or log.columns != {*names} or log.faults:
                raise ValueError(f"{run}: {', '.join([*sorted(log.columns), *log.faults])}")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name} is no W&B export over eval/time: {error}") from error
    points = {run: pd.DataFrame(log.rows, columns=names) for run, log in logs.items()}
    return {run: rows.dropna().astype(float).set_axis([*TIMES, key], axis=1)
            for run, rows in points.items()}  # fmt: skip


def _evaluations(points: pd.DataFrame, groups: int, per_evaluation: int) -> list[Row]:
    steps = optimizer_steps(points.wandb_step.astype(int).tolist(), groups, per_evaluation)
    rows = zip(steps, points.to_numpy(float).tolist(), strict=True)
    return [
        {"step": step, "train_seconds": seconds, "accuracy": accuracy, "format": math.nan}
        | {"both": math.nan, "length": length, "repeats": 1, "questions": QUESTIONS}
        | {"shared": False}
        for step, (seconds, _, accuracy, length) in rows
    ]


def optimizer_steps(points: Sequence[int], groups: int, per_evaluation: int) -> list[int]:
    """Compute the optimizer steps before each evaluation from W&B's `_step` at that time.

    `_step` counts log calls: 3 groups + 5 per step and `per_evaluation` per evaluation, so it is
    (3 groups + 5) S + per_evaluation j - 2 at the j-th evaluation, after S steps. This was found
    from the published files: it fits all 20 runs, the last evaluation of some to 0.12 of a step.
    The last one can be at the same step as the one before it.

    >>> optimizer_steps([20, 42, 98], groups=4, per_evaluation=5)
    [1, 2, 5]
    """
    calls = 3 * groups + 5
    return [round((at + 2 - per_evaluation * j) / calls) for j, at in enumerate(points, 1)]
