"""GSM8K: 7,473 train and 1,319 test word problems, from the hub or from a folder of JSON lines."""

import re

from pods.tasks.datasets.splits import Fields, ReadRow, Source, Wording, text_field

GOLD = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")
MARK = "####"  # between a worked solution and its answer
CALCULATOR = re.compile(r"<<[^<>]*>>")


def read_row(fields: Fields) -> ReadRow:
    """Read a row, whose answer must be one number."""
    question = text_field(fields, "question")
    solution = text_field(fields, "answer")
    marks = solution.count(MARK)
    if marks != 1:
        raise ValueError(f"the answer must have one mark `{MARK}`, not {marks}")

    answer = solution.partition(MARK)[2].strip()
    if GOLD.fullmatch(answer) is None:
        raise ValueError(f"the text after `{MARK}` must be a number, not {answer[:40]!r}")
    return ReadRow(question, solution, answer)


def reasoning(solution: str) -> str:
    """Return the text before the answer, without calculator marks."""
    return CALCULATOR.sub("", solution).partition(MARK)[0].strip()


def without_commas(answer: str) -> str:
    """Return the gold of an answer such as 1,200."""
    return answer.replace(",", "")


WORDING = Wording("as a single number", "the number", reasoning)
TRAIN = Source("openai/gsm8k", "train", read_row, WORDING, ("main",), without_commas)
TEST = Source("openai/gsm8k", "test", read_row, WORDING, ("main",), without_commas)
