"""Run folders as they are read for analysis: config, log and evaluation records."""

from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pods.config import Config
from pods.runs.history import evaluated_steps
from pods.runs.points import due_points, expected_points
from pods.runs.status import state_of
from pods.runs.store import RunStore

Row = dict[str, Any]


@dataclass(frozen=True)
class Records:
    """The records of one evaluation as columns: a study has millions."""

    repeat: NDArray[np.int64]
    question: list[str]
    correct: NDArray[np.bool_]
    format: NDArray[np.bool_]
    length: NDArray[np.int64]
    seed: NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """One run folder, opened and read."""

    store: RunStore
    config: Config
    identity: dict[str, Any]
    """What its hash is made of, the seed apart."""
    state: str
    lines: list[Row]
    """Of metrics.jsonl."""
    points: dict[int, float]
    """Training seconds of each step that has to be evaluated, from the log."""
    records: dict[int, Records | str]
    """Of each evaluation that there is, by step; or why it cannot be read."""


def open_run(folder: Path) -> Run:
    """Read a run folder; what cannot be read is kept as a reason, for `holes`.

    Raises:
        ValueError: the frozen config is damaged.
    """
    store = RunStore(folder)
    identity = store.identity()
    del identity["seed"]
    config = store.config()
    lines = read_rows(store.metrics_path)
    if isinstance(lines, str):
        raise ValueError(lines)
    records = {step: _read_records(store.evaluation_path(step)) for step in evaluated_steps(store)}
    state = state_of(store)
    points = (expected_points if state == "done" else due_points)(config, lines)
    return Run(store, config, identity, state, lines, points, records)


def read_rows(path: Path) -> list[Row] | str:
    """JSON lines, all at once since a study has a million; or why they cannot be read.

    A last line that was cut off is left out, as everywhere.
    """
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    try:
        return list(orjson.loads(b"[" + whole.replace(b"\n", b",") + b"]"))
    except ValueError:
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                orjson.loads(line)
            except ValueError:
                return f"{path.name} line {number} is damaged"
        return f"{path.name} is damaged"


def _read_records(path: Path) -> Records | str:
    """The records of one evaluation; or why they cannot be read."""
    rows = read_rows(path)
    if isinstance(rows, str):
        return rows
    try:
        return Records(
            np.array([row["repeat"] for row in rows], np.int64),
            [intern(row["question"]) for row in rows],
            np.array([row["correct"] for row in rows], np.bool_),
            np.array([row["format"] for row in rows], np.bool_),
            np.array([row["length"] for row in rows], np.int64),
            np.array([row["seed"] for row in rows], np.int64),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return f"{path.name}: a record without a proper {error}"
