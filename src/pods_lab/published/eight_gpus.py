"""Read the PODS authors' runs on 8 GPUs: W&B exports with one row per evaluation.

Column 0 is the time; each run has columns for its `_step` and for one metric.
Source: github.com/YixuanEvenXu/pods, `results/{h100s,a100s}-{acc,length}.csv`; its
`scripts/plot-a100s.py` draws them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pods.analysis.loading.imports import Imported
from pods_lab.audit.tables import table
from pods_lab.published.tables import Row, RunRows, collect, describe


class Metric(NamedTuple):
    """Where a number of ours stands in an export."""

    suffix: str  # of the file's name
    column: str  # W&B's name


METRICS = {
    "accuracy": Metric("acc", "eval/rewards/accuracy_reward/mean"),
    "length": Metric("length", "eval/completions/mean_length"),
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


CLUSTERS = {
    "h100s": Cluster(prefix="H100", per_evaluation=5, answers=2048),
    "a100s": Cluster(prefix="A100", per_evaluation=45, answers=1408),
}


def read_exports(folder: Path, family: str) -> Imported:
    """Read the runs of one cluster (a key of `CLUSTERS`); what is irregular is left out and named.

    `ValueError`: one of the two files is missing or is no such export; the message names it.
    """
    cluster = CLUSTERS[family]
    paths = {key: folder / f"{family}-{metric.suffix}.csv" for key, metric in METRICS.items()}
    exports = {key: _read_export(path, key) for key, path in paths.items()}
    runs = []
    missing = []
    for name in _run_names(exports):
        rows: list[Row] = []
        lacking = [paths[key].name for key, points in exports.items() if name[0] not in points]
        missing += [f"{name[0]}: {file} has no column of it" for file in lacking]
        if not lacking:
            points = exports["accuracy"][name[0]].merge(exports["length"][name[0]], on=TIMES)
            rows = _evaluations(points, int(name["groups"]), cluster.per_evaluation)

        all_are_kept = name["n"] == name["m"]
        run = describe(
            name,
            prefix=cluster.prefix,
            arm="grpo_ga" if all_are_kept else "pods",
            rule="all" if all_are_kept else "max_variance_aliased",
            machine=f"8 x NVIDIA {cluster.prefix}",
            suffix=f", groups={name['groups']}",
        )
        runs.append(RunRows(run, rows))

    about = {
        "missing": missing,
        "budget": "40 min",
        "until": UNTIL,
        "note": "logs of the PODS authors: seconds are W&B's eval/time, without evaluation; steps "
        "are computed from W&B's _step; one sampled pass, a mean over "
        f"{cluster.answers} answers (the {QUESTIONS} questions, padded), right only in LaTeX or "
        "boxed form; no point at 0 s; rule max_variance_aliased: their 8-GPU code does not compute "
        "max_variance",
    }
    return collect(runs, list(paths.values()), about)


def _run_names(exports: Mapping[str, Mapping[str, pd.DataFrame]]) -> list[re.Match[str]]:
    """Return the names of all runs in the files, by n and seed, as matches of `RUN`."""
    texts: set[str] = set()
    for points in exports.values():
        texts.update(points)
    names = []
    for text in texts:
        name = RUN.fullmatch(text)
        if name:
            names.append(name)
    return sorted(names, key=lambda name: (int(name["n"]), int(name["seed"]), name[0]))


def _read_export(path: Path, key: str) -> dict[str, pd.DataFrame]:
    """Read each run's train_seconds, wandb_step and value; a ValueError names what is no export."""
    columns = ["eval/time", "_step", METRICS[key].column]
    runs = {}
    try:
        for log in table(path):
            run = log.name.removeprefix("data/")
            if not RUN.fullmatch(run) or log.columns != set(columns) or log.faults:
                problems = ", ".join([*sorted(log.columns), *log.faults])
                raise ValueError(f"{run}: {problems}")
            points = pd.DataFrame(log.rows, columns=columns).dropna().astype(float)
            runs[run] = points.set_axis([*TIMES, key], axis=1)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name} is no W&B export over eval/time: {error}") from error
    return runs


def _evaluations(points: pd.DataFrame, groups: int, per_evaluation: int) -> list[Row]:
    """Make a row per evaluation of a run, as of `Imported.evaluations`."""
    steps = optimizer_steps(points.wandb_step.astype(int).tolist(), groups, per_evaluation)
    rows = []
    for step, point in zip(steps, points.to_dict("records"), strict=True):
        rows.append({
            "step": step,
            "train_seconds": point["train_seconds"],
            "accuracy": point["accuracy"],
            "format": math.nan,
            "both": math.nan,
            "length": point["length"],
            "repeats": 1,
            "questions": QUESTIONS,
            "shared": False,
        })  # fmt: skip
    return rows


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
    steps = []
    for evaluation, wandb_step in enumerate(points, 1):
        steps.append(round((wandb_step + 2 - per_evaluation * evaluation) / calls))
    return steps
