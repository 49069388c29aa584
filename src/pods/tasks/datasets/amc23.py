"""AMC 2023: 40 competition problems whose answers are integers; a test set only.

The PODS authors read the same set (YixuanEvenXu/pods, utils/data.py:197-221 at 3fc107e) and make an
integer of the hub's `answer`, a number such as 27.0. Copies of the set hold it as text instead.
"""

import math

from pods.tasks.datasets.json_lines import Fields, text_field
from pods.tasks.datasets.splits import Source


def read_row(fields: Fields) -> tuple[str, str, str]:
    """Return question, no solution and the answer of a row; the answer must be an integer."""
    return text_field(fields, "question"), "", integer(fields)


def integer(fields: Fields) -> str:
    """Return the answer of a row, a number or text, as an integer.

    Raises:
        ValueError: it is none.
    """
    answer = fields.get("answer")
    if not isinstance(answer, int | float) or isinstance(answer, bool):
        answer = text_field(fields, "answer")
    try:
        value = float(answer)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise ValueError(f"the answer must be an integer, not {str(answer)[:40]!r}")
    return str(int(value))


TEST = Source("zwhe99/amc23", "test", read_row)
