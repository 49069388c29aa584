r"""MATH: 7,500 competition problems of seven subjects to train on, and MATH-500 as the test set.

The answer is the content of a solution's last `\boxed{}`, its braces balanced. The PODS authors cut
it at the first `}` (utils/data.py:147-153 at 3fc107e), which makes `\frac{1` of `\frac{1}{2}`.
"""

import re
from collections.abc import Iterator

from pods.tasks.fields import Fields, text
from pods.tasks.prompts import Wording
from pods.tasks.rows import Hub, Source

SUBJECTS = ("algebra", "counting_and_probability", "geometry", "intermediate_algebra",
            "number_theory", "prealgebra", "precalculus")  # fmt: skip
MAX_GOLD = 500  # characters; an answer that is longer is none
TOKEN = re.compile(
    r"\\(?P<bare>(?:boxed|fbox)(?![A-Za-z])\s*)(?P<boxed>\{)?|\\.|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)
BOXES, OPENING = ("boxed", "bare"), ("boxed", "open")
BARE = re.compile(r"(?:[^$\\\n]|\\[^()\[\]])*")  # up to the end of the line or the formula
FORMULA_ENDS = ("$", "\\)", "\\]")


def train_fields(row: Fields) -> tuple[str, str, str]:
    """Problem, worked solution and answer of a train row.

    Raises:
        ValueError: one of them is missing, or the solution has no answer that can be read.
    """
    problem, solution = text(row, "problem"), text(row, "solution")
    return problem, solution, sound(last_box(solution))


def test_fields(row: Fields) -> tuple[str, str, str]:
    """Problem and answer of a test row, which need not have a solution.

    Raises:
        ValueError: one of them is missing, or cannot be read.
    """
    if "answer" in row:
        return text(row, "problem"), "", sound(text(row, "answer"))
    return train_fields(row)


def last_box(solution: str) -> str:
    r"""The content of the last `\boxed{}` or `\fbox{}`, in time linear in the solution's length.

    Without braces it goes to the end of the formula, or is all that is left of the line.

    Raises:
        ValueError: there is none, or where it ends cannot be told.

    >>> last_box(r"So $\boxed{3}$, hence $\boxed{\frac{1}{2}}$."), last_box(r"is $\boxed 7$.")
    ('\\frac{1}{2}', '7')
    """
    box, end, opened = None, None, list[int]()  # where the open braces' contents begin
    for token in TOKEN.finditer(solution):
        if token.lastgroup in BOXES:
            box, end = token, None
        if token.lastgroup in OPENING:
            opened.append(token.end())
        elif token.lastgroup == "close" and opened:
            begin = opened.pop()
            end = token.start() if box is not None and begin == box.end() else end
    if box is None:
        raise ValueError("the solution has no \\boxed{}")
    if box.lastgroup == "bare":
        return _bare(solution, box.end())
    if end is None:
        raise ValueError("the solution's last \\boxed{ is not closed")
    return solution[box.end() : end]


def unboxed(solution: str) -> str:
    r"""A solution without the marks of its boxes, for an example that ends in an answer of its own.

    >>> unboxed(r"So $x = \boxed{\frac{1}{2}}$.")
    'So $x = \\frac{1}{2}$.'
    """
    return "".join(_outside(solution)).strip()


def sound(answer: str) -> str:
    """An answer on one line, without dollar signs around it.

    Raises:
        ValueError: it is empty, too long, or its braces are not balanced.
    """
    plain = " ".join(answer.split())
    if plain[:1] == plain[-1:] == "$" and plain.count("$") == 2:
        plain = plain[1:-1].strip()
    if not plain:
        raise ValueError("the answer is empty")
    if len(plain) > MAX_GOLD:
        raise ValueError(f"the answer has {len(plain)} characters, more than {MAX_GOLD}")
    depth = 0
    for token in TOKEN.finditer(plain):
        depth += (token.lastgroup in OPENING) - (token.lastgroup == "close")
        if depth < 0:
            break
    if depth:
        raise ValueError(f"the braces of the answer are not balanced: {plain[:40]!r}")
    return plain


def _bare(solution: str, start: int) -> str:
    match = BARE.match(solution, start)
    assert match is not None  # it may be empty
    if solution.startswith(FORMULA_ENDS, match.end()):
        return match[0]
    answer = match[0].strip().rstrip(".,;:")
    if len(answer.split()) > 1:
        raise ValueError("where the solution's last \\boxed ends cannot be told: it has no braces")
    return answer


def _outside(solution: str) -> Iterator[str]:
    """The pieces of a solution between the marks of its boxes."""
    start, opened = 0, list[bool]()  # whether each open brace is a box's
    for token in TOKEN.finditer(solution):
        kind = token.lastgroup
        if kind in OPENING:
            opened.append(kind == "boxed")
        if kind in BOXES or (kind == "close" and opened and opened.pop()):
            yield solution[start : token.start()]
            start = token.end()
    yield solution[start:]


TRAIN = Source(Hub("EleutherAI/hendrycks_math", "train", SUBJECTS), train_fields)
TEST = Source(Hub("HuggingFaceH4/MATH-500", "test"), test_fields)
WORDING = Wording("in LaTeX, simplified", "the answer", unboxed)
