"""Evaluations of a run: their records, which steps are evaluated, and whether all is answered.

A file has a record per line: R repeats of all questions, in their order. `complete_records` alone
decides whether it is complete.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pods.config.schema import CheckpointConfig, Config
from pods.runs.attempts import recorded_changes
from pods.runs.files import Altered, read_lines, read_or_empty, replace, sha256
from pods.runs.history import checkpoint_fault, is_log_altered
from pods.runs.identity import edits
from pods.runs.records import Data, decode_lines, read_json
from pods.runs.store import RunStore
from pods.seeding import evaluation_seeds
from pods.system.errors import as_text
from pods.types import VERDICTS


class EvaluationRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question, answered once: a line of evaluations/step-*.jsonl."""

    repeat: int
    question: str  # id of the question
    correct: bool  # the answer is right by the exact grader: `verdict` is "right"
    format: bool  # the completion has the form that the prompt asks for
    lenient: bool | None  # right by the PODS authors' grader; None if the test set has none
    verdict: str  # verdict of the exact grader, one of `pods.types.VERDICTS`
    length: Annotated[int, msgspec.Meta(ge=0)]  # number of completion tokens
    finished: bool  # the completion ended by itself, not at the limit of tokens
    seed: int  # seed that the answer was sampled with

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict}: must be one of {', '.join(VERDICTS)}")
        if self.correct != (self.verdict == "right"):
            raise ValueError(f"correct={self.correct}, but verdict={self.verdict}")


NOTED = ".sha256"
DECODER = msgspec.json.Decoder(EvaluationRecord)


def asked(
    config: Config, step: int, questions: Sequence[str], test_set: str = ""
) -> list[tuple[int, str, int]]:
    """Return repeat, question and seed of every record of an evaluation, in order."""
    answers, count = list[tuple[int, str, int]](), len(questions)
    for repeat in range(config.evaluation.repeats):
        seeds = evaluation_seeds(config.seed, step, repeat, count, test_set)
        answers += zip([repeat] * count, questions, seeds, strict=True)
    return answers


def complete_records(config: Config, step: int, content: bytes) -> list[EvaluationRecord] | str:
    """Return the records of an evaluation's file, or why the file is not complete.

    A complete file has every question R times, in order, each with the seed of its run, step,
    repeat and index, and nothing else; `lenient` is null in all records or in none. How many
    questions there must be is not known here.
    """
    lines, _, cut_off = content.rpartition(b"\n")
    try:
        records = decode_lines(lines, DECODER.decode)
    except ValueError as error:
        return str(error)
    for number, record in enumerate(records, 1):
        if (record.lenient is None) != (records[0].lenient is None):
            first = records[0].lenient
            return f"line {number}: lenient={record.lenient}, but {first} in line 1"
    exact = content.count(b"\n") == content.count(b"}\n") == len(records) and not cut_off
    questions = [record.question for record in records[: len(records) // config.evaluation.repeats]]
    answers = [(record.repeat, record.question, record.seed) for record in records]
    different = 0 < len(set(questions)) == len(questions)
    if exact and different and answers == asked(config, step, questions):
        return records
    fault = "some are missing, doubled or foreign"
    return f"is not complete: it has {len(records)} records, and {fault}"


def means(records: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Average an evaluation over all its answers; NaN: the test set has no lenient grader."""
    total, lenient = len(records), [record.lenient for record in records]
    verdicts, correct = [r.verdict for r in records], [record.correct for record in records]
    return {
        "accuracy": sum(correct) / total,
        "lenient": math.nan if lenient[0] is None else lenient.count(True) / total,
        "format": sum([record.format for record in records]) / total,
        "both": sum([record.correct and record.format for record in records]) / total,
        "length": sum([record.length for record in records]) / total,
        "no_answer": verdicts.count("none") / total,
        "timeouts": verdicts.count("timeout") / total,
    }


def note_complete(path: Path) -> None:
    """Note beside the file of a complete evaluation what it holds, as `sha256sum` does."""
    replace(path.with_suffix(NOTED), f"{sha256(path)}  {path.name}\n", durable=True)


def is_changed(path: Path, content: bytes) -> bool:
    """Return whether an evaluation's file is another one than was noted, if one was."""
    noted = read_or_empty(path.with_suffix(NOTED))
    return bool(noted) and hashlib.sha256(content).hexdigest().encode() != noted[:64]


def read_evaluation(store: RunStore, config: Config, step: int) -> list[EvaluationRecord] | str:
    """Return all records of a step's evaluation, as noted, or why it is not complete.

    The number of questions is that of data.json. Without that file, or where the run recorded that
    the number changed, any will do.
    """
    path = store.evaluation_path(step)
    content = read_or_empty(path)
    if isinstance(records := complete_records(config, step, content), str):
        return f"{path.name} {records}"
    if is_changed(path, content):
        return f"{path.name} was changed after it was complete"
    data = store.data()
    if data is None or len(records) == data["test"]["problems"] * config.evaluation.repeats:
        return records
    recounted = any(line.startswith("data: test problems") for line in recorded_changes(store))
    return records if recounted else f"{path.name} has other questions than the run's data"


def is_complete(store: RunStore, config: Config, step: int) -> bool:
    """Return whether `read_evaluation` returns records."""
    return not isinstance(read_evaluation(store, config, step), str)


def due(checkpoint: CheckpointConfig, step: int, before: float, after: float) -> bool:
    """Say whether a step is an evaluation point; step 0 and the last step always are.

    The training clock was at `before` seconds when the step began, and at `after` at its end.
    """
    steps, seconds = checkpoint.every_steps, checkpoint.every_train_seconds
    by_steps = steps is not None and step % steps == 0
    return by_steps or (seconds is not None and after // seconds > before // seconds)


def due_points(config: Config, lines: Sequence[Mapping[str, Any]], ended: bool) -> dict[int, float]:
    """Return the evaluation points of a log with their training clocks in seconds.

    The last step is one if the run has `ended`. Steps that were not applied count like any other.
    """
    points, before = {0: 0.0}, 0.0
    for line in lines:
        step, after = line["step"], line["train_seconds"]
        if due(config.checkpoint, step, before, after) or (ended and line is lines[-1]):
            points[step] = after
        before = after
    return points


REREAD_BYTES = 2**26  # of larger files the size is checked: their commit read the content


def check_complete(store: RunStore, config: Config, last: int, ended: bool = True) -> None:
    """Read a run's files back up to a step; where the run has `ended` there, evaluations too.

    What is missing or damaged is `Altered`; of the checkpoints only the last can be restored.
    """
    try:
        edited = edits(config, store.config_values())
        store.identity()
        read_json(store.data_path, Data)
    except (FileNotFoundError, ValueError) as error:
        raise Altered(as_text(error)) from error
    if edited:
        raise Altered(f"{store.config_path} was edited: {'; '.join(edited)}")
    lines = read_lines(store.metrics_path)
    if [line["step"] for line in lines] != list(range(1, last + 1)):
        raise Altered(f"{store.metrics_path} does not have each of the {last} steps exactly once")
    for step in due_points(config, lines, ended):
        folder = store.checkpoint(step)
        if fault := checkpoint_fault(store, folder, max_bytes=REREAD_BYTES):
            raise Altered(f"{folder}: {fault}", recoverable=step == last)
        if ended and not is_complete(store, config, step):
            raise Altered(f"{store.evaluation_path(step)} is not complete")
    if is_log_altered(store, store.checkpoint(last)):
        raise Altered(f"{store.metrics_path} is not what was written")
