"""The PODS authors' runs on 8 GPUs: W&B exports over time, columns for each run.

Source: github.com/YixuanEvenXu/pods, `results/{h100s,a100s}-{acc,length}.csv`; how they draw
them: its `scripts/plot-a100s.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.published.export import RUN, Point, read_export
from pods.analysis.published.imports import Published, seconds_per_step
from pods.runs.files import sha256

Row = dict[str, Any]
ACCURACY, LENGTH = "eval/rewards/accuracy_reward/mean", "eval/completions/mean_length"
QUESTIONS, MAX_TOKENS = 1319, 1024
PLOTTED_SECONDS = 1800.0
TOLERANCE = 0.2
"""Of a computed optimizer step, which is a whole number."""


@dataclass(frozen=True)
class Cluster:
    """Eight GPUs."""

    prefix: str
    machine: str
    per_evaluation: int
    """W&B steps that an evaluation takes: 4 a batch of the test set, and 1."""
    answers: int
    """That a reported mean is over: the test set, padded to whole batches."""


CLUSTERS = {
    "h100s": Cluster("H100", "8 x NVIDIA H100", 5, 2048),
    "a100s": Cluster("A100", "8 x NVIDIA A100", 45, 1408),
}


def read_wandb(folder: Path, family: str) -> Published:
    """Read the runs of one cluster; whatever is irregular is left out and named.

    Args:
        folder: with `{family}-acc.csv` and `{family}-length.csv`.
        family: a key of `CLUSTERS`.

    Raises:
        ValueError: a file is not there or is no such export; the message names it.
    """
    of = CLUSTERS[family]
    paths = [folder / f"{family}-acc.csv", folder / f"{family}-length.csv"]
    accuracy, length = (read_export(p, k) for p, k in zip(paths, (ACCURACY, LENGTH), strict=True))
    runs, rows, holes = [], [], []
    for name in sorted({*accuracy, *length}, key=_order):
        about = _about(name, of)
        try:
            found = _rows(_of(paths[0], accuracy, name), _of(paths[1], length, name), about, of)
        except ValueError as error:
            found = []
            holes.append(f"{name}: {error}")
        where = {key: about[key] for key in ("series", "seed", "run")}
        rows += [{**where, **row} for row in found]
        runs.append({**about, "complete": bool(found)})
    evaluations = pd.DataFrame(rows)
    return Published(
        family=family,
        dataset="gsm8k",
        runs=pd.DataFrame(runs),
        evaluations=evaluations,
        holes=holes,
        machines=[of.machine],
        budget="40 min",
        note="logs of the PODS authors: seconds are W&B's eval/time, without evaluation; steps are "
        f"computed from W&B's _step; one sampled pass, a mean over {of.answers} answers (the "
        f"{QUESTIONS} questions, padded), right only in LaTeX or boxed form; no point at 0 s; rule "
        "max_variance_aliased: their 8-GPU code does not compute max_variance",
        seconds_per_step=seconds_per_step(evaluations),
        files={path.name: sha256(path) for path in paths},
    )


def optimizer_steps(points: list[int], groups: int, per_evaluation: int) -> list[int]:
    """Optimizer steps before each evaluation, from W&B's `_step` then.

    `_step` counts log calls: 3 groups + 5 a step and `per_evaluation` an evaluation, so it is
    (3 groups + 5) S + per_evaluation j - 2 at the j-th evaluation, after S steps. Found from the
    published files: it fits all 20 runs, the last evaluation of some to 0.12 of a step. That one
    can be at the same step as the one before it.

    >>> optimizer_steps([20, 42, 98], groups=4, per_evaluation=5)
    [1, 2, 5]

    Raises:
        ValueError: evaluations go back, or are not after a whole number of steps.
    """
    found = []
    for j, point in enumerate(points, 1):
        steps = (point + 2 - per_evaluation * j) / (3 * groups + 5)
        if point <= max(points[: j - 1], default=0):
            raise ValueError(f"_step goes back to {point}: two runs under one name?")
        if steps < 1 or abs(steps - round(steps)) > TOLERANCE:
            raise ValueError(f"_step {point} is no whole number of optimizer steps")
        found.append(round(steps))
    return found


def _of(path: Path, columns: Mapping[str, list[Point] | str], run: str) -> list[Point]:
    """A run's points in one file."""
    points = columns.get(run, "has no column of it")
    if isinstance(points, str):
        raise ValueError(f"{path.name} {points}")
    return points


def _rows(accuracy: list[Point], length: list[Point], about: Row, of: Cluster) -> list[Row]:
    """A run's evaluations, once both files agree on when they were."""
    times = [[point[:2] for point in points] for points in (accuracy, length)]
    if times[0] != times[1]:
        odd = min({*times[0]} ^ {*times[1]}, default=None)
        raise ValueError(f"accuracy and length are of other evaluations from {odd} (s, _step)")
    seconds = [point[0] for point in accuracy]
    if seconds != sorted(set(seconds)):
        raise ValueError("eval/time goes back: two runs under one name?")
    steps = optimizer_steps([point[1] for point in accuracy], about["groups"], of.per_evaluation)
    if not seconds or seconds[-1] < PLOTTED_SECONDS:
        raise ValueError(f"ends before the {PLOTTED_SECONDS:g} s that the authors plot")
    rows = []
    for step, (at, _, value), (_, _, tokens) in zip(steps, accuracy, length, strict=True):
        if not 0 <= value <= 1 or not 0 <= tokens <= MAX_TOKENS:
            raise ValueError(f"at {at:g} s: accuracy {value:g} is outside 0..1, or length "
                             f"{tokens:g} outside 0..{MAX_TOKENS}")  # fmt: skip
        rows.append({"step": step, "train_seconds": at, "accuracy": value, "format": math.nan,
                     "both": math.nan, "length": tokens, "repeats": 1, "questions": QUESTIONS,
                     "shared": False})  # fmt: skip
    return rows


def _about(name: str, of: Cluster) -> Row:
    """What a run's name says; its groups, of n rollouts of a prompt each, the authors call ga."""
    match = RUN.fullmatch(name)
    assert match
    n, m, groups = int(match["n"]), int(match["m"]), int(match["groups"])
    arm = "grpo_ga" if n == m else "pods"
    return {
        "run": name,
        "series": f"{of.prefix} {arm} {n}→{m}, groups={groups}",
        "arm": arm,
        "rule": "all" if n == m else "max_variance_aliased",
        "n": n,
        "m": m,
        "groups": groups,
        "prompts": int(match["prompts"]),
        "seed": int(match["seed"]),
        "machine": of.machine,
    }


def _order(name: str) -> tuple[int, int]:
    match = RUN.fullmatch(name)
    assert match
    return int(match["n"]), int(match["seed"])
