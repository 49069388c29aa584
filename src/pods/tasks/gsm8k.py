"""GSM8K: 7,473 train and 1,319 test word problems, from the hub or from a folder of JSON lines."""

import re

from pods.tasks.fields import Fields, text
from pods.tasks.prompts import Wording
from pods.tasks.rows import Hub, Source

GOLD = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")
MARK = "####"  # between a worked solution and its answer
CALCULATOR = re.compile(r"<<[^<>]*>>")


def fields(row: Fields) -> tuple[str, str, str]:
    """Question, worked solution and answer of a row.

    Raises:
        ValueError: one of them is missing, or the answer is not one number.
    """
    question, solution = text(row, "question"), text(row, "answer")
    marks = solution.count(MARK)
    if marks != 1:
        raise ValueError(f"the answer has {marks} marks `{MARK}`, not one")
    answer = solution.partition(MARK)[2].strip()
    if GOLD.fullmatch(answer) is None:
        raise ValueError(f"what follows `{MARK}` is no number: {answer[:40]!r}")
    return question, solution, answer


def _gold(answer: str) -> str:
    return answer.replace(",", "")


def _reasoning(solution: str) -> str:
    """What stands before the answer, without calculator marks."""
    return CALCULATOR.sub("", solution).partition(MARK)[0].strip()


TRAIN, TEST = (
    Source(Hub("openai/gsm8k", split, ("main",)), fields, _gold) for split in ("train", "test")
)
WORDING = Wording("as a single number", "the number", _reasoning)
