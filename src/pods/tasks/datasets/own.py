"""The user's own data: rows of a file or of a data set on the hub, or what a function returns.

An answer is a number or a text, or a worked solution that ends in `####` and the answer.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pods.config.task_keys import TaskConfig
from pods.system.imports import call_own, import_function
from pods.tasks.datasets import chainsum
from pods.tasks.datasets.gsm8k import MARK, reasoning
from pods.tasks.datasets.splits import (
    Fields,
    ReadRow,
    Right,
    Source,
    Split,
    Splits,
    Wording,
    read_rows,
    text_field,
)

WORDING = Wording("by itself", "the answer", reasoning, subject="question")
CHAIN = re.compile(r"[-0-9+=;#?]+")
CHAINS = "model=tiny knows 0-9 + - = ; # ?, and one digit as answer: 9+1+4 has 4, modulo ten"
MADE = "must return a train and a test list of (question, answer), optionally right(answer, gold)"
TEST_FRACTION = 0.2  # of the rows of one file
QUESTIONS = ("question", "problem")
ANSWERS = ("answer", "solution")


def divide(split: Split) -> Splits:
    """Divide rows into train and test set by a hash of their questions.

    The test set has `TEST_FRACTION` of the rows, at least one, in whatever order the rows come:
    the rows with the smallest hashes. So rows that are added later move few others.
    """
    by_hash = sorted(split.rows, key=lambda row: hashlib.sha256(row.question.encode()).digest())
    count = 0
    if len(by_hash) > 1:
        count = max(1, round(TEST_FRACTION * len(by_hash)))
    tested = {row.index for row in by_hash[:count]}

    train = tuple(row for row in split.rows if row.index not in tested)
    test = tuple(row for row in split.rows if row.index in tested)
    return Splits(
        train=replace(split, rows=train),
        test=replace(split, rows=test, malformed=()),
    )


class _Made(NamedTuple):
    """What the function of `task=own` returned."""

    train: list[Fields]
    test: list[Fields]
    right: Right | None


def make(config: TaskConfig) -> Splits:
    """Call the function of `task=own`; return its rows, and its `right` if it has one."""
    assert config.make is not None
    key = f"task.make={config.make}"
    made = call_own(f"{key}: {MADE}", import_function(config.make), (), _read_made)
    test = read_rows(made.test, SOURCE, key, "test list", ())
    train = read_rows(made.train, SOURCE, key, "train list", test.rows)
    return Splits(train, test, made.right)


def _read_made(returned: Any) -> _Made:
    train, test, *more = returned
    right = more[0] if more else None
    return _Made(_as_fields(train), _as_fields(test), right)


def _as_fields(pairs: Any) -> list[Fields]:
    return [{"question": question, "answer": answer} for question, answer in pairs]


def source(config: TaskConfig) -> Source:
    """Return how the rows of `task=jsonl` are read, in files or on the hub."""
    questions = (config.question_key,) if config.question_key else QUESTIONS
    answers = (config.answer_key,) if config.answer_key else ANSWERS
    read = _chain_row if config.answer_format == "chain" else _row
    reader = partial(read, questions=questions, answers=answers)
    return Source(config.hub or "", "train", reader, WORDING, (config.hub_config,))


def _row(
    fields: Fields, questions: Sequence[str] = QUESTIONS, answers: Sequence[str] = ANSWERS
) -> ReadRow:
    question = text_field(fields, *questions)
    text = text_field(fields, *answers, or_number=True)
    _, mark, answer = text.rpartition(MARK)
    if not answer.strip():
        raise ValueError(f"the answer has nothing after `{MARK}`")
    return ReadRow(question, text if mark else "", answer.strip())


def _chain_row(fields: Fields, questions: Sequence[str], answers: Sequence[str]) -> ReadRow:
    """Read a row for a model that writes chains; it knows few characters."""
    row = _row(fields, questions, answers)
    question = chainsum.typed(row.question)
    if CHAIN.fullmatch(question) is None:
        raise ValueError(f"must have another question: {CHAINS}")
    if row.answer not in chainsum.DIGITS:
        raise ValueError(f"must have another answer: {CHAINS}")
    return row._replace(question=question)


SOURCE = Source("", "", _row, WORDING)
