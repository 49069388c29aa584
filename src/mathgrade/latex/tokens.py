r"""The tokenizer: a closed answer, in LaTeX or plain text, as tokens in a normal form.

Any text is accepted, in time linear in its length. Spellings with one meaning become the same
tokens (`\dfrac12` and `\frac12`, `10{,}000` and `10,000`, `\text{13}` and `13`), and others stay
apart: digits with anything between them are never joined, and an unknown character rejects the
answer.
"""

import re
from collections.abc import Iterator

from mathgrade.latex.symbols import (
    AND,
    COMMANDS,
    FUNCTIONS,
    OR,
    SHORT_UNITS,
    SPACING,
    SYNONYMS,
    UNIT_LETTERS,
    WORDS,
)
from mathgrade.numbers import normalise

MAX_DIGITS = 64  # of one number
MAX_TOKENS = 500
MAX_WRAPPERS = 8
ROOT = re.compile(r"√\s*(\d+)")
SUPERSCRIPT = re.compile("(?<=[a-zA-Z)}])[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
SUPERSCRIPT_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
DEGREE = re.compile(r"(?:\^\s*)?(?:\{\\degree\}|\\degree(?![a-zA-Z]))")
UNION = re.compile(r"(?<=[)\]])\s*(?:U|\\text\s*\{\s*U\s*\})\s*(?=\\left|[(\[])")
COLOUR = re.compile(r"\\(?:text)?color\s*\{[a-z]+\}|\\underline(?=\s*\{)")
THOUSANDS = r"(?:,\\!\s*|\{,\}|\\,|,)"
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<repeating>\d*\.\d*\\overline\s*\{{\d+\}})
  | (?P<spaced>\d{{1,3}}(?:[ ]\d{{3}}){{2,}}(?![ ]?\d))
  | (?P<grouped>\d{{1,3}}(?:{THOUSANDS}\d{{3}})+(?!{THOUSANDS}?\d)(?:\.\d+)?)
  | (?P<number>\d+(?:\.\d+)?|\.\d+)
  | (?P<matrix>\\(?:begin|end)\s*\{{[a-z]*\}})
  | (?P<letters>\\mathbb\s*\{{[A-Z]\}})
  | \\(?:mathbf|mathit|mathsf|boldsymbol|operatorname)\s*\{{(?P<styled>[^{{}}\\]*)\}}
  | \\(?:text|textbf|textit|textrm|textnormal|mathrm|mbox)
    \s*\{{(?P<text>[^{{}}\\]*(?:\\[ %,$][^{{}}\\]*)*)\}}
  | (?P<command>\\[a-zA-Z]+|\\.)
  | (?P<clock>(?:[aApP]\.\ ?[mM]\b\.?|(?:(?<=\d)|(?<=\d[ ]))[AP]M\b|
      (?:(?<=:\d\d)|(?<=:\d\d[ ]))[ap]m\b))
  | (?P<word>[a-zA-Z]+)
  | (?P<symbol>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
MATHS_IN_TEXT = re.compile(r"[-+.(\[$\\ ]*\d.*|[ei]", re.ASCII | re.DOTALL)
VALUE_ENDS = (*"0123456789)]}", r"\pi", r"\circ")
NUMBERS = ("spaced", "grouped", "number", "repeating")
LONG_WORD = re.compile(r"[a-zA-Z][a-z]{3,}")


class Rejected(ValueError):
    """An answer that cannot be compared; `verdict` is `refused`, or `wrong` if it is malformed."""

    def __init__(self, verdict: str) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def tokenize(text: str) -> tuple[str, ...]:
    r"""Read a closed answer as tokens: numbers, letters, commands, symbols; `"word` for text.

    >>> tokenize(r"$\dfrac12 \text{ cm}$"), tokenize("10,000"), tokenize("1{}8")
    (('\\frac', '12', '"cm'), ('10000',), ('1', '{', '}', '8'))

    Raises:
        Rejected: the answer has too many tokens, or a character that no answer has.
    """
    tokens: list[str] = []
    plain = _to_ascii(text)
    if not all(" " <= character <= "~" or character in "\n\t\r" for character in plain):
        raise Rejected("refused")
    for token in _scan(_unwrap(plain), 0):
        tokens.append(token)
        if len(tokens) > MAX_TOKENS:
            raise Rejected("refused")
    return tuple(tokens) if len(tokens) == 1 else tuple(_upright_letters(tokens))


def _to_ascii(text: str) -> str:
    """Write known characters in ASCII and LaTeX; superscript digits become exponents."""
    text = SUPERSCRIPT.sub(lambda match: f"^{{{match[0].translate(SUPERSCRIPT_DIGITS)}}}", text)
    text = ROOT.sub(r"\\sqrt{\1}", normalise(text))
    text = UNION.sub(r"\\cup ", COLOUR.sub("", DEGREE.sub(r"^{\\circ}", text)))
    return re.sub(r"<=|>=|!=|[^\x00-\x7f]", lambda match: COMMANDS.get(match[0], match[0]), text)


def _unwrap(text: str) -> str:
    """Remove bold marks, dollar signs, boxes and one full stop from around an answer."""
    stopped = False
    for _ in range(MAX_WRAPPERS):
        before, text = text, text.strip()
        if not stopped and text.endswith((".", r".\]", r".\)", ".$")) and ".." not in text[-4:]:
            stopped = True
            text = text[: text.rindex(".")] + text[text.rindex(".") + 1 :]
        if len(text) > 4 and text.startswith("**") and text.endswith("**"):
            text = text[2:-2]
        if text.startswith("$") and text.endswith("$") and len(text) > 1:
            text = text[1:-1]
        if text.startswith(r"\boxed{") and _closing_brace(text) == len(text) - 1:
            text = text[len(r"\boxed{") : -1]
        if text == before:
            break
    return text


def _closing_brace(text: str) -> int | None:
    """Return the index at which the first brace of the text is closed."""
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0 and brace[0] == "}":
            return brace.start()
    return None


def _upright_letters(tokens: list[str]) -> Iterator[str]:
    """Turn an upright single letter into a variable, unless it is a unit behind a value."""
    previous = ""
    for token in tokens:
        letter = len(token) == 2 and token[0] == '"' and token[1].isalpha()
        if letter and (token[1] not in UNIT_LETTERS or not previous.endswith(VALUE_ENDS)):
            previous = token[1]
        else:
            previous = token
        yield previous


def _scan(text: str, depth: int) -> Iterator[str]:
    """Cut text into tokens; `depth` counts the open brackets."""
    after_number = False
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[match.lastgroup or 0]
        is_number, is_space = kind in NUMBERS, token in SPACING or token == ""
        if kind == "text":
            yield from _text(token, depth)
        elif kind == "styled":
            yield from _styled(token, depth)
        elif kind == "clock":
            yield f'"{token[0].lower()}m'
        elif kind == "word":
            spaced = match.start() == 0 or match.start("word") > match.start()
            yield from _word(token, spaced, after_number)
        elif is_number:
            yield from _number(token, kind or "", depth)
        elif kind in ("matrix", "letters"):
            yield re.sub(r"\s", "", token)
        elif token not in SPACING and not token.isspace():
            token = SYNONYMS.get(token, token)
            depth += (token in ("(", "[", r"\{")) - (token in (")", "]", r"\}"))
            yield token
        after_number = is_number or (after_number and is_space)


def _number(token: str, kind: str, depth: int) -> Iterator[str]:
    """Yield one number; within brackets a bare comma separates two, as in `(1,234)`."""
    if kind == "repeating":
        yield re.sub(r"\\overline\s*\{(\d+)\}", r"r\1", token)
    elif kind == "grouped" and depth > 0 and re.search(r"\d,\d", token):
        yield from re.split(r"(,)", re.sub(r",\\!\s*|\{,\}|\\,", "", token))
    else:
        plain = re.sub(r"[^\d.]", "", token)
        if len(plain) > MAX_DIGITS:
            raise Rejected("refused")
        yield plain


def _text(content: str, depth: int) -> Iterator[str]:
    r"""Read the content of `\text{}`: mathematics, a separator, or words such as a unit."""
    stripped = re.sub(r"\\[ ,]", " ", content).replace(r"\%", "%").strip()
    if MATHS_IN_TEXT.fullmatch(stripped):
        yield from _scan(stripped, depth)
    elif stripped in WORDS:
        yield WORDS[stripped]
    elif stripped.strip(", ") in ("and", "or"):
        yield AND if "a" in stripped else OR
    elif stripped in (":", ","):
        yield stripped
    elif stripped:
        yield f'"{stripped}'


def _styled(content: str, depth: int) -> Iterator[str]:
    """Read bold text or an operator's name; its letters are variables, never units."""
    plain = content.strip()
    if rf"\{plain}" in FUNCTIONS:
        yield rf"\{plain}"
    elif not plain.isalpha():
        yield from _scan(plain, depth)
    elif len(plain) > 3:
        yield rf"\{plain}"  # an unknown operator
    else:
        yield from plain


def _word(word: str, spaced: bool, after_number: bool) -> Iterator[str]:
    """Read a run of letters: a known word, a long word or unit, or a product of variables."""
    if word in WORDS:
        yield WORDS[word]
    elif (spaced and LONG_WORD.fullmatch(word)) or (
        (spaced or after_number) and word in SHORT_UNITS
    ):
        yield f'"{word}'
    else:
        yield from word
