r"""MATH to train on, MATH-500 and smaller test sets of competitions and universities.

All are graded alike. MATH's answer is the content of a solution's last `\boxed{}`, its braces
balanced. The PODS authors cut it at the first `}` (utils/data.py:147-153 at 3fc107e), which makes
`\frac{1` of `\frac{1}{2}`.

AMC and AIME have integers; the hub's copy of AMC has numbers such as 27.0, others have text (as in
utils/data.py:197-221). Minerva (Lewkowycz et al. 2022) has numbers as a program writes them, such
as `4.5e33` or `-1./3`: the gold is the same number as mathematics writes it. Rounded measurements
are graded exactly, so accuracies are below those of Qwen's harness, which accepts a relative error
of 1e-4 (QwenLM/Qwen2.5-Math, evaluation/ at a45202b, also for its copies). OlympiadBench (He et al.
2024, arXiv:2402.14008, OE_TO_maths_en_COMP) has a list of one text, in which several answers count
in any order.
"""

import math
import re
from decimal import Decimal

from pods.tasks.datasets.splits import Fields, ReadRow, Source, Wording, text_field

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
BOXES = ("boxed", "bare")  # groups of TOKEN
OPENING = ("boxed", "open")
BARE = re.compile(r"(?:[^$\\\n]|\\[^()\[\]])*")  # to the end of the line or the formula
FORMULA_ENDS = ("$", "\\)", "\\]")
SCIENTIFIC = re.compile(r"-?[0-9]+(?:\.[0-9]*)?e[+-]?[0-9]{1,2}")
POINT = re.compile(r"(?<=[0-9])\.(?=/)")  # of `1./3`


def read_train_row(fields: Fields) -> ReadRow:
    """Read a train row; its answer is in its solution."""
    question = text_field(fields, "problem")
    solution = text_field(fields, "solution")
    return ReadRow(question, solution, checked_answer(last_box(solution)))


def read_test_row(fields: Fields) -> ReadRow:
    """Read a test row, without its solution; the answer may be a solution's box."""
    if "answer" in fields:
        answer = text_field(fields, "answer", or_number=True)
    else:
        answer = last_box(text_field(fields, "solution"))
    question = text_field(fields, "problem", "question")
    return ReadRow(question, "", checked_answer(answer))


def read_integer(fields: Fields) -> ReadRow:
    """Read a test row whose answer must be an integer."""
    row = read_test_row(fields)
    try:
        value = float(row.answer)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise ValueError(f"the answer must be an integer, not {row.answer[:40]!r}")
    return row._replace(answer=str(int(value)))


def read_list(fields: Fields) -> ReadRow:
    """Read a test row whose answer is a list of one text."""
    answers = fields.get("final_answer")
    if not isinstance(answers, list) or len(answers) != 1:
        raise ValueError("`final_answer` must be a list of one text")
    answer = text_field({"final_answer": answers[0]}, "final_answer").replace("$", "")
    plain_fields = dict(fields)
    plain_fields["answer"] = answer
    return read_test_row(plain_fields)


def plain_number(answer: str) -> str:
    """Write a number without an exponent; other answers stay.

    >>> [plain_number(text) for text in ("4.5e3", "1e-5", "-1./3", "1.6", "e^{x}")]
    ['4500', '0.00001', '-1/3', '1.6', 'e^{x}']
    """
    if SCIENTIFIC.fullmatch(answer):
        return f"{Decimal(answer):f}"
    return POINT.sub("", answer)


def last_box(solution: str) -> str:
    r"""Return the content of the last `\boxed{}` or `\fbox{}`, in time linear in the length.

    A box without braces ends with its formula, or else with its line: `$\boxed 7$`.
    """
    boxes = list(_boxes(solution).items())
    if not boxes:
        raise ValueError("the solution has no \\boxed{}")
    box, close = boxes[-1]

    if box.lastgroup == "boxed":
        if close is None:
            raise ValueError("the solution's last \\boxed{ is not closed")
        return solution[box.end() : close.start()]

    match = BARE.match(solution, box.end())
    assert match is not None  # it may be empty
    if solution.startswith(FORMULA_ENDS, match.end()):
        return match[0]
    answer = match[0].strip().rstrip(".,;:")
    if len(answer.split()) > 1:
        raise ValueError("the solution's last \\boxed has no braces, and its end is ambiguous")
    return answer


def unboxed(solution: str) -> str:
    r"""Remove the marks of boxes from a solution, for an example that ends in its own answer.

    >>> unboxed(r"So $x = \boxed{\frac{1}{2}}$.")
    'So $x = \\frac{1}{2}$.'
    """
    marks = []
    for box, close in _boxes(solution).items():
        marks.append(box.span())
        if close is not None:
            marks.append(close.span())

    text = ""
    end_before = 0
    for start, end in sorted(marks):
        text += solution[end_before:start]
        end_before = end
    return (text + solution[end_before:]).strip()


def _boxes(solution: str) -> dict[re.Match[str], re.Match[str] | None]:
    """Map the mark of each box to the brace that closes it, if there is one."""
    boxes: dict[re.Match[str], re.Match[str] | None] = {}
    opened: list[re.Match[str]] = []
    for token in TOKEN.finditer(solution):
        if token.lastgroup in BOXES:
            boxes[token] = None
        if token.lastgroup in OPENING:
            opened.append(token)
        elif token.lastgroup == "close" and opened:
            opening = opened.pop()
            if opening in boxes:
                boxes[opening] = token
    return boxes


def checked_answer(answer: str) -> str:
    """Return an answer on one line, without dollar signs around it, its braces balanced."""
    plain = " ".join(answer.split())
    if plain[:1] == plain[-1:] == "$" and plain.count("$") == 2:
        plain = plain[1:-1].strip()

    if not plain:
        raise ValueError("the answer is empty")
    if len(plain) > MAX_GOLD:
        raise ValueError(f"the answer has {len(plain)} characters, over the limit of {MAX_GOLD}")
    if not _is_balanced(plain):
        raise ValueError(f"the braces of the answer are not balanced: {plain[:40]!r}")
    return plain


def _is_balanced(answer: str) -> bool:
    depth = 0
    for token in TOKEN.finditer(answer):
        if token.lastgroup in OPENING:
            depth += 1
        elif token.lastgroup == "close":
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


WORDING = Wording("in LaTeX, simplified", "the answer", unboxed)
TRAIN = Source("EleutherAI/hendrycks_math", "train", read_train_row, WORDING, SUBJECTS)
TEST_SETS = {
    "math500": Source("HuggingFaceH4/MATH-500", "test", read_test_row, WORDING),
    "amc23": Source("zwhe99/amc23", "test", read_integer, WORDING),
    "aime24": Source("math-ai/aime24", "test", read_integer, WORDING),
    "minerva": Source("math-ai/minervamath", "test", read_test_row, WORDING, gold=plain_number),
    "olympiad": Source("math-ai/olympiadbench", "test", read_list, WORDING),
}
