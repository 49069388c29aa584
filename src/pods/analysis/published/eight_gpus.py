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

from pods.analysis.published.imports import Published, Row, collect, describe

METRICS = {
    "accuracy": ("acc", "eval/rewards/accuracy_reward/mean"),
    "length": ("length", "eval/completions/mean_length"),
}
"""For each of our columns the suffix of the file's name, and W&B's metric."""
QUESTIONS, MAX_TOKENS = 1319, 1024
PLOTTED_SECONDS = 1800.0
TOLERANCE = 0.2
"""Largest distance of a computed optimizer step from a whole number."""
RUN = re.compile(
    r"\w+-s(?P<seed>\d+)-p(?P<prompts>[1-9]\d*)-n(?P<n>[1-9]\d*)-m(?P<m>[1-9]\d*)"
    r"-ga(?P<groups>[1-9]\d*)"
)
TIMES = ["train_seconds", "wandb_step"]


@dataclass(frozen=True)
class Cluster:
    """Eight GPUs, and how the runs on them were evaluated."""

    prefix: str
    """First word of the names of its series."""
    machine: str
    per_evaluation: int
    """W&B steps that an evaluation takes: 4 per batch of the test set, and 1."""
    answers: int
    """Number of answers in a reported mean: the test set, padded to whole batches."""


CLUSTERS = {
    "h100s": Cluster("H100", "8 x NVIDIA H100", 5, 2048),
    "a100s": Cluster("A100", "8 x NVIDIA A100", 45, 1408),
}


def read_exports(folder: Path, family: str) -> Published:
    """Read the runs of one cluster (a key of `CLUSTERS`); whatever is irregular is named.

    Raises:
        ValueError: one of the two files is missing or is no such export; the message names it.
    """
    cluster = CLUSTERS[family]
    paths = {key: folder / f"{family}-{suffix}.csv" for key, (suffix, _) in METRICS.items()}
    exports = {path.name: _read_export(path, key) for key, path in paths.items()}
    names = [RUN.fullmatch(run) for run in {run for points in exports.values() for run in points}]
    runs, holes = [], []
    for name in sorted(filter(None, names), key=_order):
        rows: list[Row] = []
        try:
            lacking = [file for file, points in exports.items() if name[0] not in points]
            if lacking:
                raise ValueError(f"{lacking[0]} has no column of it")
            accuracy, length = (points[name[0]] for points in exports.values())
            rows = _evaluations(accuracy, length, int(name["groups"]), cluster.per_evaluation)
        except ValueError as error:
            holes.append(f"{name[0]}: {error}")
        arm = "grpo_ga" if name["n"] == name["m"] else "pods"
        rule = "all" if name["n"] == name["m"] else "max_variance_aliased"
        series = f"{cluster.prefix} {arm} {name['n']}→{name['m']}, groups={name['groups']}"
        runs.append((describe(name, series, arm, rule, cluster.machine), rows))
    return collect(
        family,
        "gsm8k",
        runs,
        list(paths.values()),
        holes=holes,
        budget="40 min",
        plotted_seconds=PLOTTED_SECONDS,
        note="logs of the PODS authors: seconds are W&B's eval/time, without evaluation; steps are "
        f"computed from W&B's _step; one sampled pass, a mean over {cluster.answers} answers (the "
        f"{QUESTIONS} questions, padded), right only in LaTeX or boxed form; no point at 0 s; rule "
        "max_variance_aliased: their 8-GPU code does not compute max_variance",
    )


def _order(name: re.Match[str]) -> tuple[int, int, str]:
    return int(name["n"]), int(name["seed"]), name[0]


def _read_export(path: Path, key: str) -> dict[str, pd.DataFrame]:
    """Read the points of each run: train_seconds, wandb_step and the value, NaN if not a number.

    Raises:
        ValueError: the file is no such export; the message names it.
    """
    try:
        cells = pd.read_csv(
            path,
            index_col="eval/time",
            dtype={"eval/time": float},
            float_precision="round_trip",
            low_memory=False,
        )
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        reason = str(error).strip()
        raise ValueError(f"{path.name} is no W&B export over eval/time: {reason}") from error
    metric = METRICS[key][1]
    form = rf"^data/(?P<run>{RUN.pattern}) - (?P<key>_step|{metric})(?P<extreme>__MIN|__MAX)?$"
    columns = cells.columns.str.extract(form)[["run", "key", "extreme"]]
    if columns.run.isna().any():
        title = cells.columns[columns.run.isna()][0]
        raise ValueError(f"{path.name} has a column {title!r}, not _step or {metric} of a run")
    cells.columns = pd.MultiIndex.from_frame(columns.fillna(""))
    values = cells.xs("", axis=1, level="extreme")  # the extremes repeat the value
    return {
        run: values[run]
        .reindex(columns=["_step", metric])
        .dropna(how="all")
        .apply(pd.to_numeric, errors="coerce")
        .reset_index()
        .set_axis([*TIMES, key], axis=1)
        for run in columns.run.unique()
    }


def _evaluations(
    accuracy: pd.DataFrame, length: pd.DataFrame, groups: int, per_evaluation: int
) -> list[Row]:
    """Combine a run's points into evaluations, once both files agree on when they were."""
    both = accuracy.merge(length, on=TIMES, how="outer")
    odd = both[both.duplicated(TIMES) | both.isin([math.nan, math.inf, -math.inf]).any(axis=1)]
    if len(odd):
        seconds = odd.train_seconds.iloc[0]
        raise ValueError(f"at {seconds:g} s there is not one step, one accuracy and one length")
    steps = optimizer_steps(both.wandb_step.astype(int).tolist(), groups, per_evaluation)
    if not steps or both.train_seconds.max() < PLOTTED_SECONDS:
        raise ValueError(f"ends before the {PLOTTED_SECONDS:g} s that the authors plot")
    rows: list[Row] = []
    for step, (seconds, _, value, tokens) in zip(steps, both.to_numpy().tolist(), strict=True):
        if not 0 <= value <= 1 or not 0 <= tokens <= MAX_TOKENS:
            raise ValueError(
                f"at {seconds:g} s: accuracy {value:g} is outside 0..1, or length {tokens:g} "
                f"outside 0..{MAX_TOKENS}"
            )
        rows.append(
            {
                "step": step,
                "train_seconds": seconds,
                "accuracy": value,
                "format": math.nan,
                "both": math.nan,
                "length": tokens,
                "repeats": 1,
                "questions": QUESTIONS,
                "shared": False,
            }
        )
    return rows


def optimizer_steps(points: Sequence[int], groups: int, per_evaluation: int) -> list[int]:
    """Compute the optimizer steps before each evaluation from W&B's `_step` at that time.

    `_step` counts log calls: 3 groups + 5 per step and `per_evaluation` per evaluation, so it is
    (3 groups + 5) S + per_evaluation j - 2 at the j-th evaluation, after S steps. This was found
    from the published files: it fits all 20 runs, the last evaluation of some to 0.12 of a step.
    The last one can be at the same step as the one before it.

    >>> optimizer_steps([20, 42, 98], groups=4, per_evaluation=5)
    [1, 2, 5]

    Raises:
        ValueError: evaluations go back, or are not after a whole number of steps.
    """
    counts = []
    for j, point in enumerate(points, 1):
        steps = (point + 2 - per_evaluation * j) / (3 * groups + 5)
        if point <= max(points[: j - 1], default=0):
            raise ValueError(f"_step goes back to {point}: two runs under one name?")
        if steps < 1 or abs(steps - round(steps)) > TOLERANCE:
            raise ValueError(f"_step {point} is no whole number of optimizer steps")
        counts.append(round(steps))
    return counts
