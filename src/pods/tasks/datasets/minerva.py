r"""Minerva: 272 undergraduate problems of OpenCourseWare (Lewkowycz et al. 2022); a test set only.

The answer is the content of the solution's last box, or the field `answer` where a copy has it
(QwenLM/Qwen2.5-Math, evaluation/data/minerva_math at a45202b; math-ai/minervamath on the hub). Many
answers are numbers as a program writes them, such as `4.5e33` or `-1./3`: the gold is the same
number as mathematics writes it. Rounded measurements are graded exactly, too, so accuracies are
below those of Qwen's harness, which accepts a relative error of 1e-4.
"""

import re
from decimal import Decimal

from pods.tasks.datasets.hendrycks_math import checked_answer, last_box
from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import Source

SCIENTIFIC = re.compile(r"-?[0-9]+(?:\.[0-9]*)?e[+-]?[0-9]{1,2}")
POINT = re.compile(r"(?<=[0-9])\.(?=/)")  # of `1./3`


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return problem, no solution and the answer of a row."""
    problem = text_field(fields, "problem" if "problem" in fields else "question")
    if "answer" in fields:
        return problem, "", checked_answer(text_field(fields, "answer"))
    return problem, "", checked_answer(last_box(text_field(fields, "solution")))


def _gold(answer: str) -> str:
    """Write a number without an exponent; other answers stay.

    >>> [_gold(text) for text in ("4.5e3", "1e-5", "-1./3", "1.6", "e^{x}")]
    ['4500', '0.00001', '-1/3', '1.6', 'e^{x}']
    """
    if SCIENTIFIC.fullmatch(answer):
        return f"{Decimal(answer):f}"
    return POINT.sub("", answer)


TEST = Source("math-ai/minervamath", "test", read_row, gold=_gold)
