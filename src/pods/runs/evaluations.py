"""Evaluations of a run: the steps that are evaluated, and the one schema of the records.

A file evaluations/step-*.jsonl holds one record per line: R repeats, each with every question in
the order of the test set. Those of a further test set are in a folder of its name,
evaluations/NAME/step-*.jsonl, and have the given answer as well. Everywhere in this package the
main test set, the task's own, is the one without a name.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_type_hints

from pods.config.schema import CheckpointConfig, Config
from pods.runs.files import Altered, read_lines, read_or_empty
from pods.runs.history import checkpoint_fault
from pods.runs.identity import difference, identity_keys
from pods.runs.store import RunStore
from pods.seeding import evaluation_seeds
from pods.types import VERDICTS


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One question, answered once."""

    repeat: int
    question: str
    """Id of the question."""
    correct: bool
    """The answer is right by the exact grader: `verdict` is "right"."""
    format: bool
    """The completion has the form that the prompt asks for."""
    lenient: bool | None
    """The answer is right by the PODS authors' grader; None if the test set has no such grader."""
    verdict: str
    """Verdict of the exact grader, one of `pods.types.VERDICTS`."""
    length: int
    """Number of completion tokens."""
    finished: bool
    """The completion ended by itself, not at the limit of tokens."""
    seed: int
    """Seed that the answer was sampled with."""


@dataclass(frozen=True, slots=True)
class FurtherRecord(EvaluationRecord):
    """One question of a further test set, answered once."""

    answer: str | None
    """The given answer as `Grader.given` writes it; None: there is no closed answer."""


def _types(record: type) -> Mapping[str, tuple[type, ...]]:
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(record).items()}


TYPES, FURTHER_TYPES = _types(EvaluationRecord), _types(FurtherRecord)
"""The allowed types of each field of a record, in the order in which a line has them."""
FIELDS = tuple(TYPES)
LATER = ["lenient", "verdict"]  # fields that the first version's records did not have


class Point(NamedTuple):
    """One evaluation: of the checkpoint of a step, on a test set."""

    step: int
    test_set: str = ""
    """Name of a further test set; empty: the main one."""


def types_of(test_set: str) -> Mapping[str, tuple[type, ...]]:
    """Return the fields of a test set's records, with their allowed types."""
    return FURTHER_TYPES if test_set else TYPES


def is_record(row: Any, test_set: str = "") -> bool:
    """Say whether the content of a line is a record as this package writes it."""
    return record_error(row, test_set) is None and tuple(row) == tuple(types_of(test_set))


def record_error(row: Any, test_set: str = "") -> str | None:
    """Say why the content of a line is not a record; None if it is one, in any order of fields."""
    if not isinstance(row, dict):
        return " is not a record"
    error, fields = None, types_of(test_set)
    missing = [name for name in fields if name not in row]
    other = [name for name in fields if name in row and type(row[name]) not in fields[name]]
    if missing:
        old = ": the run was made by an older version" if missing == LATER else ""
        error = f" has no {', '.join(missing)}{old}"
    elif other:
        name = other[0]
        error = (
            f": {name}={row[name]}: must be {' or '.join(kind.__name__ for kind in fields[name])}"
        )
    elif row["verdict"] not in VERDICTS:
        error = f": verdict={row['verdict']}: must be one of {', '.join(VERDICTS)}"
    elif row["correct"] != (row["verdict"] == "right"):
        error = f": correct={row['correct']}, but verdict={row['verdict']}"
    elif row["length"] < 0:
        error = f": length={row['length']} is below 0"
    return error


def record_columns(rows: Sequence[Any], test_set: str = "") -> dict[str, list[Any]]:
    """Check the records of one evaluation and return their values by field.

    A field of all records is checked at once, since a study has millions of records.

    Raises:
        ValueError: a line is not a record, or `lenient` is null in some lines only; names the line.
    """
    fields = types_of(test_set)
    with suppress(KeyError, TypeError):
        columns = {name: [row[name] for row in rows] for name in fields}
        types = {name: set(map(type, column)) for name, column in columns.items()}
        if (
            all(types[name].issubset(allowed) for name, allowed in fields.items())
            and len(types["lenient"]) <= 1
            and set(columns["verdict"]).issubset(VERDICTS)
            and [verdict == "right" for verdict in columns["verdict"]] == columns["correct"]
            and min(columns["length"], default=0) >= 0
        ):
            return columns
    for number, row in enumerate(rows, 1):
        error = record_error(row, test_set)
        if error is None and type(row["lenient"]) is not type(rows[0]["lenient"]):
            error = f": lenient={row['lenient']}, but {rows[0]['lenient']} in line 1"
        if error is not None:
            raise ValueError(f"line {number}{error}")
    raise AssertionError("both checks are of the same conditions")


def answered_questions(
    config: Config, step: int, content: bytes, test_set: str = ""
) -> tuple[str, ...] | None:
    """Return the questions that an evaluation's file answers; None if the file is not complete.

    A complete file has every question R times, in order, each with the seed of its run, step,
    repeat and index, and nothing else. How many questions there must be is not known here: it
    depends on task and tokenizer, and is the same in the other evaluations of the run.
    """
    *lines, rest = content.split(b"\n")
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]")  # three times as fast as line by line
        columns = record_columns(rows, test_set)
    except (ValueError, RecursionError):
        return None
    repeats = config.evaluation.repeats
    size, remainder = divmod(len(rows), repeats)
    if rest or b"\r" in content or not size or remainder or len(rows) != len(lines):
        return None
    questions = columns["question"][:size]
    expected = {
        "repeat": [repeat for repeat in range(repeats) for _ in range(size)],
        "question": questions * repeats,
        "seed": [
            seed
            for repeat in range(repeats)
            for seed in evaluation_seeds(config.seed, step, repeat, size, test_set)
        ],
    }
    if any(columns[name] != values for name, values in expected.items()):
        return None
    fields = tuple(types_of(test_set))
    if len(set(questions)) != size or any(tuple(row) != fields for row in rows):
        return None
    return tuple(questions)


def is_evaluated(
    store: RunStore, config: Config, step: int, questions: int, test_set: str = ""
) -> bool:
    """Say whether a step has a complete evaluation with this number of questions."""
    content = read_or_empty(store.evaluation_path(step, test_set))
    answered = answered_questions(config, step, content, test_set)
    return answered is not None and len(answered) == questions


def due(checkpoint: CheckpointConfig, step: int, before: float, after: float) -> bool:
    """Say whether a step is an evaluation point; step 0 and the last step always are.

    Args:
        checkpoint: the distance between evaluation points.
        step: 1 for the first.
        before: training clock at the begin of the step, in seconds.
        after: training clock at the end of the step, in seconds.
    """
    if checkpoint.every_steps is not None and step % checkpoint.every_steps == 0:
        return True
    seconds = checkpoint.every_train_seconds
    return seconds is not None and after // seconds > before // seconds


def due_points(config: Config, lines: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the steps of a log that are due, and step 0, with their training clocks in seconds.

    Steps that were not applied count like any other.
    """
    points = {0: 0.0}
    for line in lines:
        after = line["train_seconds"]
        before = after - sum([line[key] for key in _phase_keys(tuple(line))])
        if due(config.checkpoint, line["step"], before, after):
            points[line["step"]] = after
    return points


@lru_cache(maxsize=100)
def _phase_keys(keys: tuple[str, ...]) -> list[str]:
    """Return the keys of a phase's seconds; most lines of all logs have the same keys."""
    return [key for key in keys if key.startswith("seconds/")]


def expected_points(config: Config, lines: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return all evaluation points of a finished run, with their training clocks in seconds."""
    last = {line["step"]: line["train_seconds"] for line in lines[-1:]}
    return {**due_points(config, lines), **last}


REREAD_BYTES = 2**26
"""Limit of a full check; larger files are checked by size, since their commit read the content."""


def check_complete(
    store: RunStore, config: Config, last: int, questions: Mapping[str, int]
) -> None:
    """Read a run's files back up to its last step, before its status says `done`.

    Args:
        store: of the run.
        config: of the run.
        last: the last step.
        questions: how many each test set has; the main one has no name.

    Raises:
        Altered: something is missing or damaged. Of the checkpoints only the last can be restored.
    """
    try:
        edited = difference(identity_keys(config), identity_keys(store.config()))
        if edited:
            raise Altered(f"{store.config_path} was edited: {'; '.join(edited)}")
        store.identity()
        has_data = store.data() is not None
    except (FileNotFoundError, ValueError) as error:
        raise Altered(str(error)) from error
    if not has_data:
        raise Altered(f"{store.data_path} is missing")
    lines = read_lines(store.metrics_path)
    if [line["step"] for line in lines] != list(range(1, last + 1)):
        raise Altered(f"{store.metrics_path} does not have each of the {last} steps exactly once")
    for step in expected_points(config, lines):
        folder = store.checkpoint(step)
        fault = checkpoint_fault(store, folder, REREAD_BYTES)
        if fault is not None:
            raise Altered(f"{folder}: {fault}", recoverable=step == last)
        for test_set, number in questions.items():
            if not is_evaluated(store, config, step, number, test_set):
                raise Altered(f"{store.evaluation_path(step, test_set)} is not complete")
