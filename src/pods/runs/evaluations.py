"""The evaluations of a run: their records, their files, and which steps are to have one.

An evaluation exists if its file does. The answers are written to a file with another name, chunk
by chunk, and that file is renamed when it has all of them. So a file with the right name is a whole
evaluation, and a run that was killed in the middle of one continues after its last chunk.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from pods.config.schema import CheckpointConfig, Config
from pods.runs.files import append, fsync, read_or_empty, replace
from pods.runs.records import Damaged, decode_lines, read
from pods.runs.store import RunStore
from pods.seeding import evaluation_seeds
from pods.types import VERDICTS


class Asked(NamedTuple):
    """One answer that an evaluation asks for."""

    repeat: int
    question: str  # id of the question
    seed: int


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

    def asked(self) -> Asked:
        """Return what this answers."""
        return Asked(self.repeat, self.question, self.seed)


MEANS = ("accuracy", "lenient", "format", "both", "length", "no_answer", "timeouts")
DECODER = msgspec.json.Decoder(EvaluationRecord)


def asked(config: Config, step: int, questions: Sequence[str], test_set: str = "") -> list[Asked]:
    """Return what an evaluation asks, in order: all questions, R times."""
    requests = []
    for repeat in range(config.evaluation.repeats):
        seeds = evaluation_seeds(config.seed, step, repeat, len(questions), test_set)
        for question, seed in zip(questions, seeds, strict=True):
            requests.append(Asked(repeat, question, seed))
    return requests


def count_answered(requests: Sequence[Asked], content: bytes) -> int:
    """Count the first lines of an unfinished file that answer their requests.

    A line that is cut off, as a power cut can leave it, or is no answer ends the count.
    """
    count = 0
    lines = content.split(b"\n")[:-1]

    for request, line in zip(requests, lines, strict=False):
        try:
            record = DECODER.decode(line)
        except ValueError:
            break
        if record.asked() != request:
            break
        count += 1

    return count


class Unfinished:
    """The file of an evaluation that is being made, in whole chunks; `finish` gives it its name."""

    def __init__(self, store: RunStore, step: int) -> None:
        self.whole = store.evaluation_path(step)
        self.path = self.whole.with_name(f"{self.whole.name}.part")

    def keep(self, requests: Sequence[Asked], chunk: int) -> int:
        """Cut off all but the finished chunks, and return how many answers these have."""
        content = read_or_empty(self.path)
        count = count_answered(requests, content)
        if count < len(requests):
            count -= count % chunk

        if content:
            lines = content.split(b"\n")[:count]
            replace(self.path, b"".join(line + b"\n" for line in lines))
        return count

    def add(self, records: Sequence[EvaluationRecord]) -> None:
        """Write the answers of one chunk."""
        append(self.path, [msgspec.structs.asdict(record) for record in records])

    def finish(self) -> None:
        """Make the evaluation exist, so that no power cut can take a part of it."""
        fsync(self.path)
        self.path.replace(self.whole)
        fsync(self.whole.parent)


def read_evaluation(store: RunStore, config: Config, step: int) -> list[EvaluationRecord]:
    """Return the records of a step's evaluation: all questions in order, R times.

    Raises:
        FileNotFoundError: the step has no evaluation.
        Damaged: the file holds something else than the run has written.
    """
    path = store.evaluation_path(step)
    content = read(path)
    try:
        records = decode_lines(content, DECODER.decode)
    except ValueError as error:
        raise Damaged(path, error) from error

    first_pass = records[: len(records) // config.evaluation.repeats]
    requests = asked(config, step, [record.question for record in first_pass])
    answered = [record.asked() for record in records]
    if not answered or answered != requests:
        raise Damaged(path, "some records are missing, duplicated or from another run")
    return records


def means(records: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Average an evaluation over all its answers; NaN: the test set has no lenient grader."""
    sums = dict.fromkeys(MEANS, 0.0)
    for record in records:
        sums["accuracy"] += record.correct
        sums["lenient"] += math.nan if record.lenient is None else record.lenient
        sums["format"] += record.format
        sums["both"] += record.correct and record.format
        sums["length"] += record.length
        sums["no_answer"] += record.verdict == "none"
        sums["timeouts"] += record.verdict == "timeout"

    return {name: total / len(records) for name, total in sums.items()}


def due(checkpoint: CheckpointConfig, step: int, before: float, after: float) -> bool:
    """Return whether a step is an evaluation point; step 0 and the last step always are.

    The training clock was at `before` seconds when the step began, and at `after` at its end.
    """
    steps = checkpoint.every_steps
    if steps is not None and step % steps == 0:
        return True

    seconds = checkpoint.every_train_seconds
    if seconds is None:
        return False
    return after // seconds > before // seconds


def due_points(config: Config, lines: Sequence[Mapping[str, Any]], ended: bool) -> dict[int, float]:
    """Return the evaluation points of a log with their training clocks in seconds.

    The last step is one if the run has `ended`. Steps that were not applied count like any other.
    """
    points = {0: 0.0}
    before = 0.0
    for line in lines:
        step = line["step"]
        after = line["train_seconds"]
        if due(config.checkpoint, step, before, after):
            points[step] = after
        before = after

    if ended and lines:
        last = lines[-1]
        points[last["step"]] = last["train_seconds"]
    return points
