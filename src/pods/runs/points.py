"""Which steps of a run are evaluated, from its config and log alone, and whether one has been."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from types import NoneType
from typing import Any

from pods.config import CheckpointConfig, Config
from pods.randomness import evaluation_seeds
from pods.records import VERDICTS

TYPES: Mapping[str, tuple[type, ...]] = {
    "repeat": (int,), "question": (str,), "correct": (bool,), "format": (bool,),
    "lenient": (bool, NoneType), "verdict": (str,), "length": (int,), "finished": (bool,),
    "seed": (int,),
}  # fmt: skip
"""Of each field of a record; `lenient` is null where the task has no such grader."""
RECORD = tuple(TYPES)
KINDS = frozenset(product(*TYPES.values()))
"""The types of a record's values, in their order: those of one file are all alike."""
LATER = ("lenient", "verdict")  # fields that records had not at first


def due(checkpoint: CheckpointConfig, step: int, before: float, after: float) -> bool:
    """Say whether a step is an evaluation point; step 0 and the last one are too.

    Args:
        checkpoint: how far apart the points are.
        step: 1 for the first.
        before: the training clock when the step began, in seconds.
        after: and when it ended.
    """
    if checkpoint.every_steps is not None and step % checkpoint.every_steps == 0:
        return True
    seconds = checkpoint.every_train_seconds
    return seconds is not None and after // seconds > before // seconds


def due_points(config: Config, lines: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Training seconds of step 0 and of every step that is due, by step.

    Args:
        config: of the run.
        lines: of its metrics.jsonl; steps that were not applied count like any other.
    """
    found = {0: 0.0}
    for line in lines:
        after = line["train_seconds"]
        before = after - sum([line[key] for key in _phases(tuple(line))])
        if due(config.checkpoint, line["step"], before, after):
            found[line["step"]] = after
    return found


@lru_cache(maxsize=100)
def _phases(keys: tuple[str, ...]) -> list[str]:
    """Those keys of a log's line that hold the seconds of a phase; all lines have mostly alike."""
    return [key for key in keys if key.startswith("seconds/")]


def expected_points(config: Config, lines: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Training seconds of every evaluation point of a run that is done, by step.

    Args:
        config: of the run.
        lines: of its metrics.jsonl.
    """
    last = {line["step"]: line["train_seconds"] for line in lines[-1:]}
    return {**due_points(config, lines), **last}


def answered(config: Config, step: int, content: bytes) -> tuple[str, ...] | None:
    """The questions that an evaluation's file answers; None if it is not whole.

    Whole is: every question R times, in order, each answer with the seed of its run, step, repeat
    and place, each value of its own type, and nothing else, line ends included. How many questions
    there are, only the task and the tokenizer know; the other files of the run, and runs like it,
    have as many.

    Args:
        config: of the run.
        step: of the checkpoint.
        content: of the file; empty if there is none.
    """
    *lines, rest = content.split(b"\n")
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]")  # three times as fast as line by line
    except ValueError:
        return None
    repeats = config.evaluation.repeats
    size, uneven = divmod(len(rows), repeats)
    if rest or not size or uneven or len(rows) != len(lines) or not all(map(is_record, rows)):
        return None
    names = tuple(row["question"] for row in rows[:size])
    asked = [
        (repeat, name, seed)
        for repeat in range(repeats)
        for name, seed in zip(names, evaluation_seeds(config.seed, step, repeat, size), strict=True)
    ]
    found = [(row["repeat"], row["question"], row["seed"]) for row in rows]
    if len({type(row["lenient"]) for row in rows}) > 1:
        return None
    return names if found == asked and b"\r" not in content and len(set(names)) == size else None


def is_record(row: Any) -> bool:
    """Say whether a line's content has the fields of a record, each of its own type.

    `"correct": "yes"` is none, nor is 1 a truth value: it would be counted like one. Nor is what
    contradicts itself: right by its verdict and not correct.
    """
    if not isinstance(row, dict) or tuple(row) != RECORD:
        return False
    if tuple(map(type, row.values())) not in KINDS or row["length"] < 0:
        return False
    return row["verdict"] in VERDICTS and row["correct"] == (row["verdict"] == "right")


def fault(rows: Sequence[Any]) -> str | None:
    """The first line that is no record, or not like the first, in words; fields in any order.

    For a file that is known to have one: it looks at a value after the other.
    """
    first = rows[0].get("lenient") if rows and isinstance(rows[0], dict) else None
    for number, row in enumerate(rows, 1):
        for wrong in _faults(row):
            return f"line {number}{wrong}"
        if type(row["lenient"]) is not type(first):
            return f"line {number}: lenient={row['lenient']}, but {first} in line 1"
    return None


def _faults(row: Any) -> Iterator[str]:
    """What keeps one line from being a record."""
    if not isinstance(row, dict):
        yield " is no record"
        return
    absent = [name for name in RECORD if name not in row]
    if absent:
        old = ": the run was made by an older version" if absent == [*LATER] else ""
        yield f" has no {', '.join(absent)}{old}"
        return
    for name, kinds in TYPES.items():
        if type(row[name]) not in kinds:
            allowed = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            yield f": {name}={row[name]} is no {allowed}"
    if row["verdict"] not in VERDICTS:
        yield f": verdict={row['verdict']} is none of {', '.join(VERDICTS)}"
    if row["correct"] != (row["verdict"] == "right"):
        yield f": correct={row['correct']}, but verdict={row['verdict']}"
    if row["length"] < 0:
        yield f": length={row['length']} is below 0"
