"""Data of one's own: rows of a file of JSON lines, or what a function returns.

An answer is a number or a text, or a worked solution that ends in `####` and the answer.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

from pods.config.task_keys import TaskConfig
from pods.system.imports import import_function
from pods.tasks.datasets.gsm8k import MARK, reasoning
from pods.tasks.datasets.splits import Fields, Source, Split, Wording, read_rows, text_field

WORDING = Wording("by itself", "the answer", reasoning, subject="question")
QUESTION_KEYS, ANSWER_KEYS = ("question", "problem"), ("answer", "solution")
TEST_FRACTION = 0.2  # of the rows of one file
Right = Callable[[str, str], bool]
"""`right(answer, gold)` decides whether an answer is correct."""


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
    """Call the function of `task=own`.

    Returns:
        Train split, test split, and the function that decides which answers are right, if any.
    """
    assert config.make is not None
    key = f"task.make={config.make}"
    try:
        train, test, right = (*import_function(config.make)(), None)[:3]
        lists = [[{"question": q, "answer": a} for q, a in rows] for rows in (train, test)]
    except Exception as error:  # the user's function may raise anything
        raise ValueError(
            f"{key}: must return a train and a test list of (question, answer), and optionally a "
            f"function right(answer, gold): {type(error).__name__}: {error}"
        ) from error
    tests = read_rows(lists[1], SOURCE, key, "test list")
    return read_rows(lists[0], SOURCE, key, "train list", tests.rows), tests, right


def _row(fields: Fields) -> tuple[str, str, str]:
    """Return question, worked solution ("" without one) and answer of a row."""
    question_key = next((key for key in QUESTION_KEYS if key in fields), QUESTION_KEYS[0])
    answer_key = next((key for key in ANSWER_KEYS if key in fields), ANSWER_KEYS[0])
    question = text_field(fields, question_key)
    value = fields.get(answer_key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = isinstance(value, int) or value.is_integer()
        return question, "", str(int(value)) if whole else repr(value)
    text = text_field(fields, answer_key)
    _, mark, answer = text.rpartition(MARK)
    if not answer.strip():
        raise ValueError(f"`{answer_key}` has nothing after `{MARK}`")
    return question, text if mark else "", answer.strip()


SOURCE = Source("", "", _row)
