"""GSM8K: 7,473 train and 1,319 test word problems, from the hub or from a folder of JSON lines."""

import re

from pods.tasks.datasets.splits import Fields, Source, Wording, text_field

GOLD = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")
MARK = "####"  # between a worked solution and its answer
CALCULATOR = re.compile(r"<<[^<>]*>>")


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return question, worked solution and answer of a row; the answer must be one number."""
    question, solution = text_field(fields, "question"), text_field(fields, "answer")
    if (marks := solution.count(MARK)) != 1:
        raise ValueError(f"the answer must have one mark `{MARK}`, not {marks}")
    answer = solution.partition(MARK)[2].strip()
    if GOLD.fullmatch(answer) is None:
        raise ValueError(f"the text after `{MARK}` must be a number, not {answer[:40]!r}")
    return question, solution, answer


def reasoning(solution: str) -> str:
    """Return the text before the answer, without calculator marks."""
    return CALCULATOR.sub("", solution).partition(MARK)[0].strip()


WORDING = Wording("as a single number", "the number", reasoning)
TRAIN, TEST = (
    Source("openai/gsm8k", split, read_row, WORDING, ("main",), lambda text: text.replace(",", ""))
    for split in ("train", "test")
)
