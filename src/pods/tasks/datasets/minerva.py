"""Minerva: 272 undergraduate problems of OpenCourseWare (Lewkowycz et al. 2022); a test set only.

The answer is the content of the solution's last box, or the field `answer` where a copy has it
(QwenLM/Qwen2.5-Math, evaluation/data/minerva_math at a45202b; math-ai/minervamath on the hub). Many
answers are rounded measurements such as `4.5e33`: they are graded exactly here, so numbers are
below those of Qwen's harness, which accepts a relative error of 1e-4.
"""

from pods.tasks.datasets.hendrycks_math import checked_answer, last_box
from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import Source


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return problem, no solution and the answer of a row."""
    problem = text_field(fields, "problem" if "problem" in fields else "question")
    if "answer" in fields:
        return problem, "", checked_answer(text_field(fields, "answer"))
    return problem, "", checked_answer(last_box(text_field(fields, "solution")))


TEST = Source("math-ai/minervamath", "test", read_row)
