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
    *("loss", "lr", "grad_norm", "clip_fraction", "kl", "entropy", "kept_projection"),
    *("logprob_gap", "logprob_gap_mean", "importance_mean", "importance_ess", "importance_cut"),
    "engine_gap",
    *("trained_rollouts", "trained_tokens"),
)
"""Numbers of metrics.jsonl about the update; those about rollouts and prompts are the others."""
EVAL = ("accuracy", "format", "length", "timeouts", "lenient")  # means over an evaluation


class Row(NamedTuple):
    """One row of a run's history."""

    position: int  # it only grows: 2k for the log's step k, 2k + 1 for the evaluation of that step
    values: Mapping[str, float]


def read_rows(config: Config, store: RunStore, first: int = 0, ended: bool = True) -> list[Row]:
    """Read the rows of a run from position `first` on; an incomplete evaluation has none.

    Of a run that may be resumed (not `ended`), steps after the newest checkpoint are left out.
    """
    lines = read_lines(store.metrics_path)
    seconds = {0: 0.0, **{line["step"]: line["train_seconds"] for line in lines}}
    rows = [training_row(line) for line in lines if 2 * line["step"] >= first]
    for step in evaluated_steps(store):
        if 2 * step + 1 >= first and step in seconds:
            records = read_evaluation(store, config, step)
            if not isinstance(records, str):
                rows.append(evaluation_row(step, seconds[step], records))
    if not ended:
        last = max((clock["step"] for clock in clocks(store).values()), default=-1)
        rows = [row for row in rows if row.position <= 2 * last + 1]
    return sorted(rows)


def training_row(line: Mapping[str, Any]) -> Row:
    """Return the numbers of a line of metrics.jsonl, under the names that trackers show."""
    numbers = {k: number for k, number in line.items() if isinstance(number, int | float)}
    return Row(2 * line["step"], {metric_name(key): number for key, number in numbers.items()})


def evaluation_row(step: int, train_seconds: float, records: Sequence[EvaluationRecord]) -> Row:
    """Return the means over the records of the evaluation of a step."""
    found = means(records)
    shown = {f"eval/{name}": found[name] for name in EVAL if not math.isnan(found[name])}
    return Row(2 * step + 1, {"step": step, "train_seconds": train_seconds, **shown})


def metric_name(key: str) -> str:
    """Return the name of a key of metrics.jsonl.

    >>> [metric_name(key) for key in ("step", "loss", "reward", "cpu_seconds/update")]
    ['step', 'train/loss', 'rollouts/reward', 'time/update_cpu_seconds']
    """
    unit, _, phase = key.partition("/")
    if unit in ("seconds", "cpu_seconds") and phase:
        return f"time/{phase}_{unit}"
    if key in AXIS:
        return key
    return f"train/{key}" if key in TRAIN else f"rollouts/{key}"


def description(config: Config, store: RunStore) -> dict[str, Any]:
    """Return project, name, group and config; W&B's id tells runs of equal name apart."""
    series = config.series_label()  # as figures have it
    environment = [None, *environments(store)][-1]
    return {
        "project": os.environ.get("WANDB_PROJECT", "pods"),
        "name": f"{series} s{config.seed}",
        "group": config.study,
        "config": {**asdict(config), "series": series, "environment": environment},
    }
