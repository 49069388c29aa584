"""Read one JSON log of the PODS authors, or say why it cannot be the log of one complete run."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from pods.analysis.published.imports import Row

CHECKPOINT = re.compile(r"checkpoint-([1-9]\d*)")
QUESTIONS = {"gsm8k": 1319, "math500": 496, "amc23": 40}  # math500: prompts of at most 512 tokens
MEASURES = {
    "accuracy": "ans_acc",
    "lenient": "ans_acc",
    "format": "for_acc",
    "both": "both_acc",
    "length": "lengths",
}
CHECKPOINTS, REPEATS, MAX_TOKENS = 12, 5, 512
TOLERANCE = 1.6
"""Largest ratio of neighbouring increments of one run's steps; it is 1.34 in 20 published runs."""


def read_log(path: Path, dataset: str) -> list[Row]:
    """Read a run's log: one row per checkpoint by ascending step, averaged over the repeats.

    Raises:
        ValueError: the log is irregular; the message says how, without the file's name.
    """
    content = read_object(path)
    for name in content:
        if not CHECKPOINT.fullmatch(name):
            raise ValueError(f"{name!r} is no checkpoint")
    rows = []
    for step, name in sorted((int(name.rpartition("-")[2]), name) for name in content):
        try:
            rows.append({"step": step, **average_repeats(content[name], dataset)})
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    faults = [] if len(rows) == CHECKPOINTS else [f"{len(rows)} checkpoints, not {CHECKPOINTS}"]
    faults += filter(None, [spacing_fault([row["step"] for row in rows])])
    if faults:
        raise ValueError("; ".join(faults))
    return rows


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        ValueError: it does not, or a key occurs twice, which would hide one of its values.
    """
    try:
        content = json.loads(path.read_bytes(), object_pairs_hook=_with_unique_keys)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def _with_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)} occurs twice")
    return values


def average_repeats(block: object, dataset: str) -> Row:
    """Average the repeats of one evaluation: accuracy, format, both (fractions), length (tokens).

    Their grader is the lenient one, so accuracy is also `lenient`.

    Raises:
        ValueError: the block is not an evaluation of five repeats on that test set.
    """
    evaluation = block.get(dataset) if isinstance(block, dict) else None
    if not isinstance(evaluation, dict):
        raise ValueError(f"no evaluation on {dataset}")
    for key in MEASURES.values():
        _check(evaluation.get(key), key, dataset)
    answers, formats, boths = (evaluation[key] for key in ("ans_acc", "for_acc", "both_acc"))
    for limit, both in zip(map(min, answers, formats), boths, strict=True):
        if both > limit:
            raise ValueError(f"{dataset} both_acc {both} is above ans_acc or for_acc")
    means = {name: fmean(evaluation[key]) for name, key in MEASURES.items()}
    return {**means, "repeats": REPEATS, "questions": QUESTIONS[dataset]}


def _check(values: object, key: str, dataset: str) -> None:
    """Refuse values that cannot be five mean lengths, or five shares of the test set."""
    if not isinstance(values, list) or {type(value) for value in values} - {int, float}:
        raise ValueError(f"{dataset} {key} is no list of numbers")
    if len(values) != REPEATS:
        raise ValueError(f"{dataset} {key} has {len(values)} values, not {REPEATS}")
    limit, questions = MAX_TOKENS if key == "lengths" else 1, QUESTIONS[dataset]
    for value in values:
        if not 0 <= value <= limit:  # true for NaN as well
            raise ValueError(f"{dataset} {key} {value} is outside 0..{limit}")
        if key != "lengths" and abs(value * questions - round(value * questions)) > 1e-6:
            raise ValueError(f"{dataset} {key} {value} is no share of {questions} questions")


def spacing_fault(steps: Sequence[int]) -> str | None:
    """Say why checkpoints cannot belong to one run, which saves by time and so in even steps.

    A run may slow down or speed up for good as its completions get longer or shorter, but it does
    not alternate. Two runs in one file do, and so does a run that lacks a checkpoint. `steps` are
    ascending.

    >>> spacing_fault([160, 336, 491, 654])
    >>> spacing_fault([50, 101, 150, 251, 300, 352])
    'a checkpoint is missing between 150 and 251'
    >>> spacing_fault([171, 204, 351, 485, 741])
    'they read as two runs: 171, 351 and 204, 485, 741'
    """
    if all(_continues(steps[:i], step) for i, step in enumerate(steps)):
        return None
    if runs := _split(steps):
        return "they read as two runs: " + " and ".join(", ".join(map(str, run)) for run in runs)
    edges = list(pairwise([0, *steps]))
    for before, (start, end), after in zip(edges, edges[1:], edges[2:], strict=False):
        shorter, longer = sorted(high - low for low, high in (before, after))
        if end - start > TOLERANCE * longer:
            return f"a checkpoint is missing between {start} and {end}"
        if (end - start) * TOLERANCE < shorter:
            return f"{start} and {end} are too close for one run"
    return None


def _continues(run: Sequence[int], step: int) -> bool:
    """Say whether a step can be the next checkpoint of a run that started at 0."""
    if not run:
        return True
    last, increment = run[-1] - (run[-2] if len(run) > 1 else 0), step - run[-1]
    return max(last, increment) <= TOLERANCE * min(last, increment)


def _split(steps: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """Split the steps into two even runs of at least two checkpoints, if that is possible."""
    splits: list[tuple[list[int], list[int]]] = [(list(steps[:1]), [])]
    for step in steps[1:]:
        first = [([*one, step], two) for one, two in splits if _continues(one, step)]
        splits = first + [(one, [*two, step]) for one, two in splits if _continues(two, step)]
    return next((split for split in splits if min(map(len, split)) > 1), None)
