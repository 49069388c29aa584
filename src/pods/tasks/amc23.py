"""AMC 2023: 40 competition problems whose answers are integers; a test set only.

The PODS authors read the same set (YixuanEvenXu/pods, utils/data.py:197-221 at 3fc107e): the hub's
`answer`, a number such as 27.0, made an integer. Copies of it hold the answer as a text instead.
"""

import math

from pods.tasks.fields import Fields, text
from pods.tasks.rows import Hub, Source


def fields(row: Fields) -> tuple[str, str, str]:
    """Question and answer of a row, which has no solution.

    Raises:
        ValueError: one of them is missing, or the answer is no integer.
    """
    question = text(row, "question")
    answer = row.get("answer")
    if not isinstance(answer, int | float) or isinstance(answer, bool):
        answer = text(row, "answer")
    try:
        value = float(answer)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise ValueError(f"the answer is no integer: {str(answer)[:40]!r}")
    return question, "", str(int(value))


TEST = Source(Hub("zwhe99/amc23", "test"), fields)
