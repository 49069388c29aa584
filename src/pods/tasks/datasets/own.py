"""Data of one's own: rows of a file of JSON lines, or what a function returns.

An answer is a number or a text, or a worked solution that ends in `####` and the answer.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pods.config.schema import TaskConfig
from pods.system.imports import import_function
from pods.tasks.datasets.gsm8k import MARK, reasoning
from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import (
    Source,
    Split,
    check_rows,
    normalise,
    read_file,
    read_lines,
)
from pods.tasks.prompts import Wording

WORDING = Wording("by itself", "the answer", reasoning, subject="question")
Right = Callable[[str, str], bool]
"""`right(answer, gold)` decides whether an answer is correct."""


def read(config: TaskConfig) -> tuple[Split, Split]:
    """Read the train and the test split of `task=jsonl` or `task=own`, with their malformed rows.

    Raises:
        ValueError: a file cannot be read, or the function fails or returns something else.
    """
    if config.name == "own":
        train, test, _ = made(config)
        return train, test
    source = _source(config.question_key, config.answer_key)
    files, key = config.files(), f"task.path={config.path}"
    if config.test_fraction is not None:
        return divide(read_file(files["train"], source, key, {}), config.test_fraction)
    test_key = key if config.test_path is None else f"task.test_path={config.test_path}"
    test = read_file(files["test"], source, test_key, {})
    tested = {normalise(row.question): f"test row {row.index + 1}" for row in test.rows}
    return read_file(files["train"], source, key, tested), test


def read_questions(file: Path, config: TaskConfig) -> Split:
    """Read a file of questions, with the keys of the config; malformed rows are printed.

    Raises:
        ValueError: it cannot be read, or has no usable row.
    """
    split = read_file(file, _source(config.question_key, config.answer_key), f"file={file}", {})
    check_rows("test", split)
    return split


def divide(split: Split, fraction: float) -> tuple[Split, Split]:
    """Divide rows into train and test set by a hash of their questions.

    The test set has the share `fraction` of the rows, at least one, whatever their order: those
    whose hashes are the smallest. So rows that are added later move few others.
    """
    order = sorted(split.rows, key=lambda row: hashlib.sha256(row.question.encode()).digest())
    count = max(1, round(fraction * len(order))) if len(order) > 1 else 0
    tested = {row.index for row in order[:count]}
    train = tuple(row for row in split.rows if row.index not in tested)
    test = tuple(row for row in split.rows if row.index in tested)
    return replace(split, rows=train), replace(split, rows=test, malformed=())


def made(config: TaskConfig) -> tuple[Split, Split, Right | None]:
    """Call the function of `task=own`.

    Returns:
        Train split, test split, and the function that decides which answers are right, if any.

    Raises:
        ValueError: the function fails, or does not return two lists of (question, answer).
    """
    assert config.make is not None
    key = f"task.make={config.make}"
    try:
        returned = import_function(config.make)()
        parts = (*returned, None)[:3]
        train, test = (
            [{"question": question, "answer": answer} for question, answer in rows]
            for rows in parts[:2]
        )
    except Exception as error:  # the user's function may raise anything
        raise ValueError(
            f"{key}: must return a train and a test list of (question, answer), and at will a "
            f"function right(answer, gold): {type(error).__name__}: {error}"
        ) from error
    source = _source("question", "answer")
    tests = read_lines([_numbers_as_json(row) for row in test], source, key, "test list", {})
    tested = {normalise(row.question): f"test row {row.index + 1}" for row in tests.rows}
    lines = [_numbers_as_json(row) for row in train]
    return read_lines(lines, source, key, "train list", tested), tests, parts[2]


def _source(question_key: str, answer_key: str) -> Source:
    """Say how to read a row; the file's place stands in the config."""
    return Source("", "", partial(_row, question_key, answer_key))


def _row(question_key: str, answer_key: str, fields: Fields) -> tuple[str, str, str]:
    """Return question, worked solution ("" without one) and answer of a row."""
    question = text_field(fields, question_key)
    value = fields.get(answer_key)
    if isinstance(value, float):
        return question, "", f"{value:.0f}" if value.is_integer() else repr(value)
    text = text_field(fields, answer_key)
    _, mark, answer = text.rpartition(MARK)
    if not answer.strip():
        raise ValueError(f"`{answer_key}` has nothing after `{MARK}`")
    return question, text if mark else "", answer.strip()


def _numbers_as_json(row: dict[str, Any]) -> Fields:
    """Make numbers what a file of JSON lines would give."""
    number = isinstance(row["answer"], int | float) and not isinstance(row["answer"], bool)
    return {**row, "answer": float(row["answer"])} if number else row
