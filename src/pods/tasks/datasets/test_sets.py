"""Small test sets of competition and university mathematics, all graded as MATH.

AMC 2023: 40 problems whose answers are integers; the hub's copy has numbers such as 27.0, others
have text (as in YixuanEvenXu/pods, utils/data.py:197-221 at 3fc107e). AIME 2024: the 30 problems of
both papers, also integers.

Minerva: 272 problems of OpenCourseWare (Lewkowycz et al. 2022). Many answers are numbers as a
program writes them, such as `4.5e33` or `-1./3`: the gold is the same number as mathematics writes
it. Rounded measurements are graded exactly, so accuracies are below those of Qwen's harness, which
accepts a relative error of 1e-4 (QwenLM/Qwen2.5-Math, evaluation/ at a45202b, also for its copies).

OlympiadBench: its 675 English problems (He et al. 2024, arXiv:2402.14008, OE_TO_maths_en_COMP).
`final_answer` is a list of one text, in which several answers count in any order.
"""

import math
import re
from decimal import Decimal

from pods.tasks.datasets.hendrycks_math import checked_answer, last_box
from pods.tasks.datasets.splits import Fields, Source, text_field

SCIENTIFIC = re.compile(r"-?[0-9]+(?:\.[0-9]*)?e[+-]?[0-9]{1,2}")
POINT = re.compile(r"(?<=[0-9])\.(?=/)")  # of `1./3`


def read_integer(fields: Fields) -> tuple[str, str, str]:
    """Return question, no solution and the answer of a row, which must be an integer."""
    question, answer = _question(fields), fields.get("answer")
    if not isinstance(answer, int | float) or isinstance(answer, bool):
        answer = _answer(fields)
    try:
        value = float(answer)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise ValueError(f"the answer must be an integer, not {str(answer)[:40]!r}")
    return question, "", str(int(value))


def read_text(fields: Fields) -> tuple[str, str, str]:
    """Return the same of a row whose answer may be anything."""
    return _question(fields), "", checked_answer(_answer(fields))


def read_list(fields: Fields) -> tuple[str, str, str]:
    """Return the same of a row whose answer is a list of one text."""
    answers = fields.get("final_answer")
    if not isinstance(answers, list) or len(answers) != 1:
        raise ValueError("`final_answer` must be a list of one text")
    answer = text_field({"final_answer": answers[0]}, "final_answer").replace("$", "")
    return _question(fields), "", checked_answer(answer)


def plain_number(answer: str) -> str:
    """Write a number without an exponent; other answers stay.

    >>> [plain_number(text) for text in ("4.5e3", "1e-5", "-1./3", "1.6", "e^{x}")]
    ['4500', '0.00001', '-1/3', '1.6', 'e^{x}']
    """
    if SCIENTIFIC.fullmatch(answer):
        return f"{Decimal(answer):f}"
    return POINT.sub("", answer)


def _question(fields: Fields) -> str:
    return text_field(fields, "problem" if "problem" in fields else "question")


def _answer(fields: Fields) -> str:
    """Return the answer as text; some copies have only a solution, which ends in a box."""
    if "answer" in fields:
        return text_field(fields, "answer")
    return last_box(text_field(fields, "solution"))


TEST_SETS = {
    "amc23": Source("zwhe99/amc23", "test", read_integer),
    "aime24": Source("math-ai/aime24", "test", read_integer),
    "minerva": Source("math-ai/minervamath", "test", read_text, gold=plain_number),
    "olympiad": Source("math-ai/olympiadbench", "test", read_list),
}
