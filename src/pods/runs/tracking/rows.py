"""Read from a run's own files the rows that trackers show, and what describes the run."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pods.config.schema import Config
from pods.runs.attempts import environments
from pods.runs.evaluations import EvaluationRecord, means, read_evaluation
from pods.runs.files import read_lines
from pods.runs.history import clocks, evaluated_steps
from pods.runs.store import RunStore

AXIS = ("step", "train_seconds")  # numbers without a prefix: what charts are drawn over
PREFIXES = ("train", "rollouts", "time", "eval")
TRAIN = (
    "loss",
    "lr",
    "grad_norm",
    "clip_fraction",
    "kl",
    "entropy",
    "kept_projection",
    "logprob_gap",
    "logprob_gap_mean",
    "importance_mean",
    "importance_ess",
    "importance_cut",
    "engine_gap",
    "trained_rollouts",
    "trained_tokens",
)
"""Numbers of metrics.jsonl about the update; the others are about rollouts and prompts."""
EVAL = ("accuracy", "format", "length", "timeouts", "lenient")  # means over an evaluation


class Row(NamedTuple):
    """One row of a run's history."""

    position: int  # it only grows: 2k for the log's step k, 2k + 1 for the evaluation of that step
    values: Mapping[str, float]


def read_rows(config: Config, store: RunStore, first: int = 0, ended: bool = True) -> list[Row]:
    """Read the rows of a run from position `first` on.

    Of a run that may be resumed (not `ended`), steps after the newest checkpoint are left out.
    """
    lines = read_lines(store.metrics_path)
    rows = [training_row(line) for line in lines if 2 * line["step"] >= first]
    seconds = {0: 0.0}
    for line in lines:
        seconds[line["step"]] = line["train_seconds"]

    for step in evaluated_steps(store):
        is_new = 2 * step + 1 >= first
        if is_new and step in seconds:
            records = read_evaluation(store, config, step)
            rows.append(evaluation_row(step, seconds[step], records))

    rows.sort()
    if ended:
        return rows
    return _up_to_newest_checkpoint(store, rows)


def _up_to_newest_checkpoint(store: RunStore, rows: Sequence[Row]) -> list[Row]:
    """Leave out rows that a resume would make again."""
    steps = [clock["step"] for clock in clocks(store).values()]
    last = 2 * max(steps, default=-1) + 1
    return [row for row in rows if row.position <= last]


def training_row(line: Mapping[str, Any]) -> Row:
    """Return the numbers of a line of metrics.jsonl, under the names that trackers show."""
    values = {}
    for key, value in line.items():
        if isinstance(value, int | float):
            values[metric_name(key)] = value
    return Row(2 * line["step"], values)


def evaluation_row(step: int, train_seconds: float, records: Sequence[EvaluationRecord]) -> Row:
    """Return the means over the records of the evaluation of a step."""
    values = {"step": step, "train_seconds": train_seconds}
    averages = means(records)
    for name in EVAL:
        if not math.isnan(averages[name]):
            values[f"eval/{name}"] = averages[name]
    return Row(2 * step + 1, values)


def metric_name(key: str) -> str:
    """Return the name of a key of metrics.jsonl.

    >>> [metric_name(key) for key in ("step", "loss", "reward", "cpu_seconds/update")]
    ['step', 'train/loss', 'rollouts/reward', 'time/update_cpu_seconds']
    """
    if key in AXIS:
        return key
    if key in TRAIN:
        return f"train/{key}"

    unit, _, phase = key.partition("/")
    if phase and unit in ("seconds", "cpu_seconds"):
        return f"time/{phase}_{unit}"
    return f"rollouts/{key}"


class Description(NamedTuple):
    """What trackers show of a run besides its rows."""

    project: str
    name: str  # equal names are possible: W&B's id tells such runs apart
    group: str
    config: dict[str, Any]


def description(config: Config, store: RunStore) -> Description:
    """Return what describes a run, with the machine of its last attempt in the config."""
    series = config.series_label()  # as figures have it
    attempts = environments(store)
    settings = asdict(config)
    settings["series"] = series
    settings["environment"] = attempts[-1] if attempts else None

    return Description(
        project=os.environ.get("WANDB_PROJECT", "pods"),
        name=f"{series} s{config.seed}",
        group=config.study,
        config=settings,
    )
