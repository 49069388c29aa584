"""Run folders as they are read for analysis: config, log and evaluation records."""

from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pods.config import Config
from pods.records import VERDICTS
from pods.runs.attempts import environments, marks
from pods.runs.checkpoint import DAMAGED
from pods.runs.files import content_of
from pods.runs.history import evaluated_steps
from pods.runs.identity import fingerprint, settled_of
from pods.runs.points import RECORD, TYPES, due_points, expected_points, fault
from pods.runs.status import state_of
from pods.runs.store import RunStore

Row = dict[str, Any]
PLACES = {verdict: place for place, verdict in enumerate(VERDICTS)}
CHECKED = [name for name in TYPES if name not in ("question", "verdict")]  # those check themselves


@dataclass(frozen=True)
class Records:
    """The records of one evaluation as columns: a study has millions."""

    repeat: NDArray[np.int64]
    question: list[str]
    correct: NDArray[np.bool_]
    format: NDArray[np.bool_]
    lenient: NDArray[np.bool_] | None
    """Right by the PODS authors' grader; None: not a task of theirs."""
    verdict: NDArray[np.uint8]
    """Place in `VERDICTS`."""
    length: NDArray[np.int64]
    seed: list[int]
    cut: bool
    """Something follows the last whole line."""


@dataclass(frozen=True)
class Run:
    """One run folder, opened and read."""

    store: RunStore
    config: Config
    identity: dict[str, Any]
    """What its hash is made of, the seed apart."""
    state: str
    step: int
    """The last one, as status.json says."""
    lines: list[Row]
    """Of metrics.jsonl."""
    points: dict[int, float]
    """Training seconds of each step that has to be evaluated, from the log."""
    records: dict[int, Records | str]
    """Of each evaluation that there is, by step; or why it cannot be read."""
    attempts: list[Row]
    """Machine and versions of each process that worked on it."""
    foreign: list[str]
    """In what config, identity and folder contradict each other."""
    changes: list[str]
    """What changed on the way, such as a version."""


def open_run(folder: Path) -> Run:
    """Read a run folder; an evaluation that cannot be read is kept as a reason, for `holes`.

    Raises:
        ValueError: without config, identity, status or log there is no run.
    """
    store = RunStore(folder)
    try:
        identity, config, status = store.identity(), store.config(), store.status()
        changes = marks(store)
        foreign = [] if changes else _contradictions(store, config, identity)
        seed = identity.pop("seed")
        lines = read_rows(store.metrics_path)
        if isinstance(lines, str):
            raise ValueError(lines)
        state = state_of(store, status=status)
        points = (expected_points if state == "done" else due_points)(config, lines)
        step = int(status.get("step", 0))
        attempts = [found for found in environments(store) if isinstance(found, dict)]
    except DAMAGED as error:
        raise ValueError(f"{folder.parent.name}/{folder.name} cannot be read: "
                         f"{type(error).__name__}: {error}") from error  # fmt: skip
    records: dict[int, Records | str] = {}
    questions: list[str] = []
    for at in evaluated_steps(store):
        found = records[at] = _read_records(store.evaluation_path(at), questions)
        questions = questions if isinstance(found, str) else found.question
    foreign += [] if seed == config.seed else [f"seed {seed} and {config.seed}"]
    return Run(store, config, identity, state, step, lines, points, records, attempts, foreign,
               changes)  # fmt: skip


def _contradictions(store: RunStore, config: Config, identity: dict[str, Any]) -> list[str]:
    """Where the frozen config is not what the identity says, or the folder's name not its hash.

    A run that was allowed to change is marked, and may: it is not asked.
    """
    found = []
    if not store.folder.name.endswith(f"-{fingerprint(identity)}"):
        found.append("the folder's name is not the hash of identity.json")
    frozen = settled_of(config)
    differing = [name for name in frozen if name in identity and frozen[name] != identity[name]]
    return found + [f"config.yaml and identity.json differ in {name}" for name in differing]


def read_rows(path: Path) -> list[Row] | str:
    """JSON lines, all at once since a study has a million; or why they cannot be read.

    A last line that was cut off is left out, as everywhere.
    """
    return _parsed(content_of(path), path.name)


def _parsed(content: bytes, name: str) -> list[Row] | str:
    whole = content.rpartition(b"\n")[0]
    try:
        return list(orjson.loads(b"[" + whole.replace(b"\n", b",") + b"]"))
    except ValueError:
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                orjson.loads(line)
            except ValueError:
                return f"{name} line {number} is damaged"
        return f"{name} is damaged"


def _read_records(path: Path, questions: list[str]) -> Records | str:
    """The records of one evaluation; or why they cannot be read.

    Args:
        path: of the file.
        questions: of another evaluation of the run, which has most likely the same.
    """
    content = content_of(path)
    rows = _parsed(content, path.name)
    if isinstance(rows, str):
        return rows
    try:
        return _columns(rows, questions, cut=not content.endswith(b"\n"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return f"{path.name} {fault(rows) or f'is damaged ({error})'}"


def _columns(rows: list[Row], questions: list[str], cut: bool) -> Records:
    """Turn records into columns, a whole one at a time.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: a line is no record; `fault` knows which.
    """
    columns = {name: [row[name] for row in rows] for name in RECORD}
    kinds = {name: set(map(type, columns[name])) for name in CHECKED}
    if any(kinds[name] - {*TYPES[name]} for name in CHECKED) or len(kinds["lenient"]) > 1:
        raise ValueError("a value is of another type")
    asked = columns["question"]
    verdict = np.fromiter(map(PLACES.__getitem__, columns["verdict"]), np.uint8, len(rows))
    correct, length = _truths(columns["correct"]), np.array(columns["length"], np.int64)
    if ((verdict == PLACES["right"]) != correct).any() or (length < 0).any():
        raise ValueError("a record contradicts itself")
    return Records(
        np.array(columns["repeat"], np.int64),
        questions if asked == questions else [intern(question) for question in asked],
        correct,
        _truths(columns["format"]),
        _truths(columns["lenient"]) if kinds["lenient"] == {bool} else None,
        verdict,
        length,
        columns["seed"],
        cut,
    )


def _truths(values: list[bool]) -> NDArray[np.bool_]:
    """An array of them, three times as fast as NumPy goes through a list."""
    return np.frombuffer(bytes(values), np.bool_)
