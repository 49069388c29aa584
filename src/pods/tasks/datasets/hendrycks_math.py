r"""MATH: 7,500 competition problems of seven subjects to train on, and MATH-500 as the test set.

The answer is the content of a solution's last `\boxed{}`, its braces balanced. The PODS authors cut
it at the first `}` (utils/data.py:147-153 at 3fc107e), which makes `\frac{1` of `\frac{1}{2}`.
"""

import re
from itertools import accumulate

from pods.tasks.datasets.splits import Fields, Source, Wording, text_field

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
MAX_GOLD = 500  # characters
TOKEN = re.compile(
    r"\\(?P<bare>(?:boxed|fbox)(?![A-Za-z])\s*)(?P<boxed>\{)?|\\.|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)
BOXES, OPENING = ("boxed", "bare"), ("boxed", "open")
BARE = re.compile(r"(?:[^$\\\n]|\\[^()\[\]])*")  # to the end of the line or the formula
FORMULA_ENDS = ("$", "\\)", "\\]")


def read_train_row(fields: Fields) -> tuple[str, str, str]:
    """Return problem, worked solution and its answer of a train row."""
    problem, solution = text_field(fields, "problem"), text_field(fields, "solution")
    return problem, solution, checked_answer(last_box(solution))


def read_test_row(fields: Fields) -> tuple[str, str, str]:
    """Return the same of a test row, which needs no solution if it has an answer."""
    if "answer" in fields:
        answer = checked_answer(text_field(fields, "answer"))
        return text_field(fields, "problem"), "", answer
    return read_train_row(fields)


def last_box(solution: str) -> str:
    r"""Return the content of the last `\boxed{}` or `\fbox{}`, in time linear in the length.

    A box without braces ends with its formula, or else with its line.

    >>> last_box(r"So $\boxed{3}$, hence $\boxed{\frac{1}{2}}$."), last_box(r"is $\boxed 7$.")
    ('\\frac{1}{2}', '7')
    """
    box, end, opened = None, None, list[int]()  # starts of the contents of open braces
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
    r"""Remove the marks of boxes from a solution, for an example that ends in its own answer.

    >>> unboxed(r"So $x = \boxed{\frac{1}{2}}$.")
    'So $x = \\frac{1}{2}$.'
    """
    pieces, start, opened = list[str](), 0, list[bool]()  # for each open brace: is it a box's
    for token in TOKEN.finditer(solution):
        kind = token.lastgroup
        if kind in OPENING:
            opened.append(kind == "boxed")
        if kind in BOXES or (kind == "close" and opened and opened.pop()):
            pieces.append(solution[start : token.start()])
            start = token.end()
    return "".join([*pieces, solution[start:]]).strip()


def checked_answer(answer: str) -> str:
    """Return an answer on one line, without dollar signs around it, its braces balanced."""
    plain = " ".join(answer.split())
    if plain[:1] == plain[-1:] == "$" and plain.count("$") == 2:
        plain = plain[1:-1].strip()
    if not plain:
        raise ValueError("the answer is empty")
    if len(plain) > MAX_GOLD:
        raise ValueError(f"the answer has {len(plain)} characters, over the limit of {MAX_GOLD}")
    kinds = [token.lastgroup for token in TOKEN.finditer(plain)]
    depths = [*accumulate(((kind in OPENING) - (kind == "close") for kind in kinds), initial=0)]
    if min(depths) < 0 or depths[-1]:
        raise ValueError(f"the braces of the answer are not balanced: {plain[:40]!r}")
    return plain


def _bare(solution: str, start: int) -> str:
    match = BARE.match(solution, start)
    assert match is not None  # it may be empty
    if solution.startswith(FORMULA_ENDS, match.end()):
        return match[0]
    answer = match[0].strip().rstrip(".,;:")
    if len(answer.split()) > 1:
        raise ValueError("the solution's last \\boxed has no braces, and its end is ambiguous")
    return answer


TRAIN = Source("EleutherAI/hendrycks_math", "train", read_train_row, SUBJECTS)
TEST = Source("HuggingFaceH4/MATH-500", "test", read_test_row)
WORDING = Wording("in LaTeX, simplified", "the answer", unboxed)
