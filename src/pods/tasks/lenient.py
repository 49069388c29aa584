r"""The PODS authors' lenient grader, for comparison with their numbers; golds are plain numbers.

Source: YixuanEvenXu/pods, utils/data.py `answer_correct`, utils/grader.py `grade_answer` and
utils/normalize.py, at 3fc107e (the release with their GSM8K results) and 187f43b (later). An answer
is right if any of three candidates is: the whole completion, the text after the last `<answer>`, or
the last number. A candidate is right if either of two normal forms of it equals that of the gold.
Their third way, sympy, is commented out in their code; a few rules replace their use of pylatexenc,
and a candidate over MAX_CANDIDATE characters is wrong.
"""

import re

LAST_NUMBER = {"release": re.compile(r"\d+"), "later": re.compile(r"[\d\.\,]+")}
MAX_CANDIDATE = 1000
WHOLE_TEXT = re.compile(r"\\text\{(.+?)\}\n?\Z")
UNITS = re.compile(
    r"(?:degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard)"
    r"(?:es)?s? *(?:\^[0-9]+)?"
)
CIRCLE = re.compile(r"\^ *\\circ")
SEPARATOR = re.compile(r",\\! *")
COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
MIXED = re.compile(r"(?<=[0-9]) +(?=[0-9])")
LATEX = re.compile(
    r"\\[()\[\]\\]|\\(?:boxed|fbox|text(?:bf|it|rm)?|math(?:rm|bf|it)|underline|displaystyle|q?quad|left|right)"
    r"(?![a-zA-Z])"
)
SPACES = re.compile(r"\\[ ,;:!]|~")
REMOVED = ("\n", "\\!", "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "\\%")
"""Text that the first normal form removes, in this order."""
NEAR = 1e-7


def lenient(completion: str, gold: str, era: str) -> bool:
    """Return whether the authors' code accepts a completion; the gold has no thousands separators.

    Era is `release` or `later`; they differ in how they find the last number.

    >>> [lenient(text, "18", "release") for text in ("so 18", "<answer>1 8</answer>", "-18", "7")]
    [True, True, True, False]
    """
    golds = {_mathd(gold), _numeric(gold)}
    tagged = completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    numbers = LAST_NUMBER[era].findall(completion)
    last_number = numbers[-1] if numbers else "-1"
    for text in (completion, tagged, last_number):
        if len(text) <= MAX_CANDIDATE and (_mathd(text) in golds or _numeric(text) in golds):
            return True
    return False


def _mathd(text: str) -> str:
    """Return the first normal form (utils/normalize.py), as far as it can be that of a number.

    It joins digits over line breaks and spaces, and removes a short `x=`.
    """
    whole = WHOLE_TEXT.match(text.strip())
    plain = whole[1].strip() if whole else text.strip()
    if plain.count("\\text{ ") > 1:
        return plain  # their assertion fails here, and the text so far is the result
    for mark in REMOVED:
        plain = plain.replace(mark, "")
    plain = plain.partition("\\text{ ")[0].replace(" .", " 0.")
    if plain.startswith("."):
        plain = f"0{plain}"

    left, equals, right = plain.partition("=")
    if equals and "=" not in right and len(left) <= 2:
        plain = right
    return plain.replace(" ", "")


def _numeric(text: str) -> str:
    """Return the second (utils/grader.py `_normalize`): no units, near-integers rounded."""
    whole = WHOLE_TEXT.match(text)
    plain = (whole[1] if whole else text).replace("\\%", "").replace("\\$", "")
    plain = CIRCLE.sub("", UNITS.sub("", plain.replace("$", "").replace("%", "")))
    if plain.startswith("{") and plain.endswith("}"):
        plain = plain[1:-1]
    plain = SEPARATOR.sub("", plain)

    near = _near_integer(plain)
    if near is not None:
        plain = str(near)
    if "\\" in plain:
        plain = SPACES.sub(" ", LATEX.sub("", plain)).strip()
    plain = MIXED.sub("+", re.sub("- *", "-", plain))
    for mark in (" ", "{", "}"):
        plain = plain.replace(mark, "")
    if _near_integer(COMMA.sub("", plain)) is None:
        return plain.lower()
    return str(int(float(plain.replace(",", ""))))


def _near_integer(text: str) -> int | None:
    """Return the integer within 1e-7 of what Python's `float` reads, if there is one."""
    try:
        value = float(text)
        nearest = round(value)
    except (ValueError, OverflowError):  # not a number, infinite or NaN
        return None
    if abs(value - nearest) <= NEAR:
        return nearest
    return None
