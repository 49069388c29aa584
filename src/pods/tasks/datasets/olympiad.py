"""OlympiadBench: its 675 English competition problems in mathematics, as text with an answer.

He et al. 2024, arXiv:2402.14008, OE_TO_maths_en_COMP; a test set only. `final_answer` is a list of
one text, of which Qwen's harness uses the first, too (QwenLM/Qwen2.5-Math, evaluation/parser.py at
a45202b): several answers are a list in that text, such as `$69$,$84$`, and count in any order. One
row has a tolerance, and eight have a unit; they are graded exactly, with the unit optional.
"""

from pods.tasks.datasets.hendrycks_math import checked_answer
from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import Source


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return question, no solution and the answer of a row, which must be one text."""
    answers = fields.get("final_answer")
    if not isinstance(answers, list) or len(answers) != 1:
        raise ValueError("`final_answer` must be a list of one text")
    answer = text_field({"final_answer": answers[0]}, "final_answer").replace("$", "")
    return text_field(fields, "question"), "", checked_answer(answer)


TEST = Source("math-ai/olympiadbench", "test", read_row)
