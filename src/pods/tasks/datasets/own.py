"""Data of one's own: rows of a file of JSON lines, or what a function returns.

An answer is a number or a text, or a worked solution that ends in `####` and the answer.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pods.config.task_keys import TaskConfig
from pods.system.imports import call_own, import_function
from pods.tasks.datasets import chainsum
from pods.tasks.datasets.gsm8k import MARK, reasoning
from pods.tasks.datasets.splits import Fields, Source, Split, Wording, read_rows, text_field

WORDING = Wording("by itself", "the answer", reasoning, subject="question")
CHAIN = re.compile(r"[-0-9+=;#?]+")
CHAINS = "model=tiny knows 0-9 + - = ; # ?, and one digit as answer: 9+1+4 has 4, modulo ten"
MADE = "must return a train and a test list of (question, answer), optionally right(answer, gold)"
TEST_FRACTION = 0.2  # of the rows of one file
Right = Callable[[str, str], bool]  # `right(answer, gold)` decides whether an answer is correct


def divide(split: Split) -> tuple[Split, Split]:
    """Divide rows into train and test set by a hash of their questions.

    The test set has `TEST_FRACTION` of the rows, at least one, whatever their order: those whose
    hashes are the smallest. So rows that are added later move few others.
    """
    order = sorted(split.rows, key=lambda row: hashlib.sha256(row.question.encode()).digest())
    count = max(1, round(TEST_FRACTION * len(order))) if len(order) > 1 else 0
    tested = {row.index for row in order[:count]}
    train = tuple(row for row in split.rows if row.index not in tested)
    test = tuple(row for row in split.rows if row.index in tested)
    return replace(split, rows=train), replace(split, rows=test, malformed=())


def made(config: TaskConfig) -> tuple[Split, Split, Right | None]:
    """Call the function of `task=own`; return train and test split, and `Right` if it has one."""
    assert config.make is not None
    key = f"task.make={config.make}"

    def read(returned: Any) -> tuple[Any, ...]:
        train, test, right = (*returned, None)[:3]
        return *([{"question": q, "answer": a} for q, a in rows] for rows in (train, test)), right

    train, test, right = call_own(f"{key}: {MADE}", import_function(config.make), (), read)
    tests = read_rows(test, SOURCE, key, "test list", ())
    return read_rows(train, SOURCE, key, "train list", tests.rows), tests, right


def _row(fields: Fields) -> tuple[str, str, str]:
    """Return question, worked solution ("" without one) and answer of a row."""
    question = text_field(fields, "question", "problem")
    text = text_field(fields, "answer", "solution", or_number=True)
    _, mark, answer = text.rpartition(MARK)
    if not answer.strip():
        raise ValueError(f"the answer has nothing after `{MARK}`")
    return question, text if mark else "", answer.strip()


def _chain_row(fields: Fields) -> tuple[str, str, str]:
    """Return the same of a row for a model that writes chains; it knows few characters."""
    question, solution, answer = _row(fields)
    question = chainsum.typed(question)
    if not (asked := CHAIN.fullmatch(question)) or answer not in chainsum.DIGITS:
        raise ValueError(f"must have another {'answer' if asked else 'question'}: {CHAINS}")
    return question, solution, answer


SOURCE = Source("", "", _row, WORDING)
CHAIN_SOURCE = Source("", "", _chain_row, WORDING)
