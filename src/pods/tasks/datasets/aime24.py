"""AIME 2024: the 30 problems of both papers, whose answers are integers; a test set only.

Copies differ: `answer` as a number or text, or only a `solution` that ends in a box
(QwenLM/Qwen2.5-Math, evaluation/data/aime24 at a45202b, and math-ai/aime24 on the hub).
"""

from pods.tasks.datasets.amc23 import integer
from pods.tasks.datasets.hendrycks_math import last_box
from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import Source


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return problem, no solution and the answer of a row; the answer must be an integer."""
    problem = text_field(fields, "problem")
    if "answer" in fields:
        return problem, "", integer(fields)
    return problem, "", integer({"answer": last_box(text_field(fields, "solution"))})


TEST = Source("math-ai/aime24", "test", read_row)
