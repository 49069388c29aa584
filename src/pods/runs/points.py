"""Which steps of a run are evaluated, from its config and log alone, and whether one has been."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pods.config import CheckpointConfig, Config
from pods.randomness import evaluation_seeds

TYPES = {"repeat": int, "question": str, "correct": bool, "format": bool, "length": int,
         "finished": bool, "seed": int}  # fmt: skip
RECORD = tuple(TYPES)


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
        before = after - sum(line[key] for key in line if key.startswith("seconds/"))
        if due(config.checkpoint, line["step"], before, after):
            found[line["step"]] = after
    return found


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
    return names if found == asked and b"\r" not in content and len(set(names)) == size else None


def is_record(row: Any) -> bool:
    """Say whether a line's content has the fields of a record, each of its own type.

    `"correct": "yes"` is none, nor is 1 a truth value: it would be counted like one.
    """
    if not isinstance(row, dict) or tuple(row) != RECORD:
        return False
    return all(type(row[key]) is kind for key, kind in TYPES.items()) and row["length"] >= 0
