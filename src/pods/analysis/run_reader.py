"""Read a run folder for analysis: config, log and evaluation records."""

from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pods.config.schema import Config
from pods.runs.attempts import environments, recorded_changes
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.evaluations import due_points, expected_points, record_columns
from pods.runs.files import read_or_empty
from pods.runs.history import evaluated_steps, further_sets
from pods.runs.identity import fingerprint, identity_keys
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.types import VERDICTS

Row = dict[str, Any]
VERDICT_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True)
class Records:
    """The records of one evaluation as columns: a study has millions of them."""

    repeat: NDArray[np.int64]
    question: list[str]
    correct: NDArray[np.bool_]
    format: NDArray[np.bool_]
    lenient: NDArray[np.bool_] | None
    """Correct by the PODS authors' grader; None: the task has no such grader."""
    verdict: NDArray[np.uint8]
    """Index into `VERDICTS`."""
    length: NDArray[np.int64]
    seed: list[int]
    truncated: bool
    """The file ends with an incomplete line."""
    answer: list[str | None] | None
    """The given answers, which only the records of further test sets have."""


@dataclass(frozen=True)
class Further:
    """The evaluations of a run on one further test set."""

    records: dict[int, Records]
    """The records of each evaluation, by step."""
    unreadable: dict[int, str]
    """Why the records of an evaluation cannot be read, by step."""


@dataclass(frozen=True)
class Run:
    """One run folder, opened and read."""

    store: RunStore
    config: Config
    identity: dict[str, Any]
    """The keys that the run's hash is made of, without the seed."""
    state: str
    step: int
    """The last step, according to status.json."""
    lines: list[Row]
    """The lines of metrics.jsonl."""
    points: dict[int, float]
    """Training seconds of each step that has to be evaluated, from the log."""
    records: dict[int, Records]
    """The records of each evaluation, by step."""
    unreadable: dict[int, str]
    """Why the records of an evaluation cannot be read, by step."""
    further: dict[str, Further]
    """The same on further test sets: those that the config asks for, and those that are there."""
    attempts: list[Row]
    """Machine and versions of each process that worked on the run."""
    contradictions: list[str]
    """Where config, identity and folder contradict each other."""
    changes: list[str]
    """What changed during the run, such as a version."""


def open_run(folder: Path) -> Run:
    """Read a run folder; an evaluation that cannot be read is kept as the reason why.

    Raises:
        ValueError: config, identity, status or log cannot be read.
    """
    store = RunStore(folder)
    try:
        identity, config, status = store.identity(), store.config(), store.status()
        changes = recorded_changes(store)
        contradictions = [] if changes else _contradictions(store, config, identity)
        seed = identity.pop("seed")
        lines = _read_rows(read_or_empty(store.metrics_path), store.metrics_path.name)
        state = state_of(store, status=status)
        points = (expected_points if state == "done" else due_points)(config, lines)
        step = int(status.get("step", 0))
        attempts = [attempt for attempt in environments(store) if isinstance(attempt, dict)]
    except READ_ERRORS as error:
        raise ValueError(
            f"{folder.parent.name}/{folder.name} cannot be read: {type(error).__name__}: {error}"
        ) from error
    records, unreadable = _read_evaluations(store, "")
    names = dict.fromkeys([*config.evaluation.sets, *further_sets(store)])
    further = {name: Further(*_read_evaluations(store, name)) for name in names}
    if seed != config.seed:
        contradictions.append(f"identity.json has seed {seed}, config.yaml has {config.seed}")
    return Run(
        store=store,
        config=config,
        identity=identity,
        state=state,
        step=step,
        lines=lines,
        points=points,
        records=records,
        unreadable=unreadable,
        further=further,
        attempts=attempts,
        contradictions=contradictions,
        changes=changes,
    )


def _read_evaluations(store: RunStore, test_set: str) -> tuple[dict[int, Records], dict[int, str]]:
    """Read a run's evaluations on one test set; return records, and why others cannot be read."""
    records, unreadable, questions = dict[int, Records](), dict[int, str](), list[str]()
    for step in evaluated_steps(store, test_set):
        try:
            path = store.evaluation_path(step, test_set)
            records[step] = _read_records(path, questions, test_set)
            questions = records[step].question
        except ValueError as error:
            unreadable[step] = str(error)
    return records, unreadable


def _contradictions(store: RunStore, config: Config, identity: dict[str, Any]) -> list[str]:
    """Compare the frozen config and the folder's name with the identity.

    A run that was allowed to change is marked as changed instead.
    """
    found = []
    if not store.folder.name.endswith(f"-{fingerprint(identity)}"):
        found.append("the folder's name is not the hash of identity.json")
    frozen = identity_keys(config)
    differing = [name for name in frozen if name in identity and frozen[name] != identity[name]]
    return found + [f"config.yaml and identity.json differ in {name}" for name in differing]


def _read_rows(content: bytes, name: str) -> list[Row]:
    """Parse JSON lines, all at once since a study has a million; an incomplete last one is ignored.

    Raises:
        ValueError: a line is damaged; the message names it.
    """
    complete = content.rpartition(b"\n")[0]
    try:
        return list(orjson.loads(b"[" + complete.replace(b"\n", b",") + b"]"))
    except ValueError:
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                orjson.loads(line)
            except ValueError as error:
                raise ValueError(f"{name} line {number} is damaged") from error
        raise ValueError(f"{name} is damaged") from None


def _read_records(path: Path, questions: list[str], test_set: str) -> Records:
    """Read the records of one evaluation.

    Args:
        path: the file.
        questions: those of another evaluation of the run, whose list is shared if it is equal.
        test_set: name of a further test set; empty: the main one.

    Raises:
        ValueError: a line is damaged or no record; the message names it.
    """
    content = read_or_empty(path)
    rows = _read_rows(content, path.name)
    try:
        columns = record_columns(rows, test_set)
        return _columns(columns, questions, truncated=not content.endswith(b"\n"))
    except ValueError as error:
        raise ValueError(f"{path.name} {error}") from error
    except OverflowError as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error


def _columns(columns: dict[str, list[Any]], questions: list[str], truncated: bool) -> Records:
    """Turn the columns of records into arrays.

    Raises:
        OverflowError: a number is too large.
    """
    names = columns["question"]
    return Records(
        repeat=np.array(columns["repeat"], np.int64),
        question=questions if names == questions else [intern(name) for name in names],
        correct=_booleans(columns["correct"]),
        format=_booleans(columns["format"]),
        lenient=None if {None}.issuperset(columns["lenient"]) else _booleans(columns["lenient"]),
        verdict=np.fromiter(
            map(VERDICT_CODES.__getitem__, columns["verdict"]), np.uint8, len(names)
        ),
        length=np.array(columns["length"], np.int64),
        seed=columns["seed"],
        truncated=truncated,
        answer=columns.get("answer"),
    )


def _booleans(values: list[bool]) -> NDArray[np.bool_]:
    """Make an array, three times as fast as NumPy does from a list."""
    return np.frombuffer(bytes(values), np.bool_)
