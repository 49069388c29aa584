"""Exact reading of answers that are one number; nothing is evaluated.

Any text is accepted, and reading takes time linear in its length.
"""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from mathgrade.number_words import (
    ASIDE_HEDGES,
    CURRENCY_WORDS,
    DANGLING,
    GLUED_UNITS,
    LEAD_HEDGES,
    LINKS,
    NUMBER_WORDS,
    SCALES,
    TAIL_HEDGES,
    UNIT_LETTERS,
    is_negation,
)

MAX_ANSWER = 200  # characters; a longer answer is not one number
VARIANTS = {"<wide>", "<narrow>", "<small>", "<font>", "<noBreak>"}
"""Kinds of Unicode variants that mean the same character; ², ½ and ① do not mean 2, 1/2 and 1."""
LOOKALIKES = str.maketrans(
    "\u2212\u2010\u2011\u2013\u2019\u3002\u5143\u5186",  # minus, hyphens, dash, quote, CJK signs
    "----'.¥¥",
)
PLAIN = re.compile(r"[+-]?\d{1,64}", re.ASCII)
THIN = re.compile(r"(?<=[0-9])(?:\{,\}|,\\!|\\,|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))")
"""Thousands separators beside the comma: LaTeX's {,} and thin space, and no-break spaces."""
HEADING = re.compile(r"#{1,6} *")
DECORATION = re.compile(
    r"\\(?:f?box(?:ed)?|text(?:bf|it|rm)?|math(?:rm|bf|it)|boldsymbol|underline|displaystyle|bf|rm"
    r"|large|Large|huge|Huge|therefore|Rightarrow|implies|q?quad)(?![a-zA-Z])"
    r"|\\[()\[\]!,;: ]|\^\{?\\circ\}?|\*{1,3}|[{}`°]"
)
SUBSCRIPT = re.compile(r"(?<=[A-Za-z])_(?:[A-Za-z0-9_]{1,16}|\{[A-Za-z0-9_ ]{1,16}\})")
DIGITS = re.compile(r"[0-9][0-9.,]*|(?<![A-Za-z.])\.[0-9][0-9.,]*")
VALUE = re.compile(
    r"(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]{1,64})?(?:\.(?P<decimals>[0-9]{1,64}))?"
)
EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,2})(?![0-9A-Za-z])")
LEAD = re.compile(r"[A-Za-z',:= ]*")
UNIT = re.compile(
    r"%? ?(?:[-/ ]{{0,2}}{0}(?:(?: ?/ ?| |-){0})*)? ?\.?".format(
        r"(?:[A-Za-z]++(?:['.][A-Za-z]++)*+\.?(?: ?\^ ?[23]|[²³])?|(?:[cmk]?m|ft|in|yd|mi)[23])"
    )
)
ASIDE = re.compile(r" ?(?:[,;:\u2014] [A-Za-z' ]+(?:\([A-Za-z. ]*\))?)+\.?\Z")
"""What follows a number behind a comma, in words: `72, altogether`, `72, which is the total`."""
REMARK = re.compile(r"[(\[]([A-Za-z. ]*)[)\]]")
WORD = re.compile(r"[A-Za-z']+")
ROMAN = re.compile(r"[IVXLC]{2,}")


def number(text: str) -> Fraction | None:
    r"""Read an answer that is one number, exactly; return None if it is anything else.

    A sign, thousands separators, decimals, a currency, a percent sign (18% is 18), an exponent, a
    unit as text, what the number is the value of (`x = 18`, `She makes $18.`), an afterthought
    (`18, altogether`), and the marks of bold, formulas and boxes are allowed. A second number, also
    one as text, a hedge or a sum is not.

    >>> number(" $1,234.50 "), number("x = -\\boxed{18}"), number("The answer is 18 dollars.")
    (Fraction(2469, 2), Fraction(-18, 1), Fraction(18, 1))
    >>> number("12 or 18"), number("1 8"), number("18 thousand"), number("18²")
    (None, None, None, None)
    """
    text = text.strip(" \t\r\n")
    if len(text) > MAX_ANSWER:
        return None
    if PLAIN.fullmatch(text):
        return Fraction(text)
    bare, has_currency = _undecorated(text)
    aside = ASIDE.search(bare)
    if aside is not None:
        if _alters(WORD.findall(aside[0]), ASIDE_HEDGES):
            return None
        bare = bare[: aside.start()]

    digits = DIGITS.search(bare)  # a second group of digits could not be part of a unit
    value = None if digits is None else _value(digits[0])
    if digits is None or value is None:
        return None
    sign, tail = _sign(bare[: digits.start()].rstrip()), bare[digits.end() :]
    exponent = EXPONENT.match(tail)
    if exponent is not None:
        value, tail = value * Fraction(10) ** int(exponent[1]), tail[exponent.end() :]
    return None if sign is None or not _is_unit(tail, has_currency) else sign * value


def normalise(text: str) -> str:
    """Replace full-width, small and other variants by the characters that they mean.

    Minus signs become `-`. Full NFKC would make 182 of 18².

    >>> normalise("１８"), normalise("\u22125"), normalise("18²")
    ('18', '-5', '18²')
    """
    return text if text.isascii() else "".join(map(_character, text)).translate(LOOKALIKES)


def _character(character: str) -> str:
    variant = unicodedata.decomposition(character).partition(" ")[0]
    return unicodedata.normalize("NFKC", character) if variant in VARIANTS else character


def _undecorated(text: str) -> tuple[str, bool]:
    """Remove decoration and currency; also return whether there was a currency.

    The text is empty if braces do not match or it contains characters that no reader sees.
    """
    plain = HEADING.sub("", normalise(THIN.sub(",", text)), count=1)
    depth = 0
    for brace in re.findall(r"[{}]", plain):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return "", False
    if depth or not all(one.isprintable() or one in "\t\r\n" for one in plain):
        return "", False
    plain = SUBSCRIPT.sub("", plain.replace("\\%", "%").replace("\\$", "$"))
    currencies = {one for one in plain if unicodedata.category(one) == "Sc"}
    for currency in currencies:
        plain = plain.replace(currency, " ")
    bare = " ".join(DECORATION.sub(" ", plain).split())
    named = any(word.lower() in CURRENCY_WORDS for word in WORD.findall(bare))
    return (bare, bool(currencies) or named) if len(currencies) <= 1 else ("", False)


def _value(digits: str) -> Fraction | None:
    match = VALUE.fullmatch(digits.removesuffix("."))  # the end of a sentence
    if match is None or not (match["whole"] or match["decimals"]):
        return None
    whole, decimals = (match["whole"] or "").replace(",", ""), match["decimals"] or ""
    return Fraction(int(whole + decimals), 10 ** len(decimals))


def _sign(lead: str) -> int | None:
    """Return the sign, 1 or -1; None if the text before the number does more than introduce it."""
    sign = -1 if lead.endswith("-") else 1
    words = (lead[:-1] if lead.endswith(("+", "-")) else lead).split()
    if words and words[-1].lower() in CURRENCY_WORDS:
        words.pop()
    if words and words[-1].lower() in ("minus", "negative") and sign == 1:
        sign = -1
        words.pop()
    if not words:
        return sign
    lead = " ".join(words)
    lower = [word.lower() for word in WORD.findall(lead)]
    linked = lead[-1] in ":=" or (lower and lower[-1] in LINKS) or lead.endswith(" equal to")
    if LEAD.fullmatch(lead) is None or not linked:
        return None
    subject = [word for word in lower if word not in LINKS]
    if subject[-1:] and subject[-1] in NUMBER_WORDS:
        return None  # as in `seventeen is 18`
    return None if any(word in LEAD_HEDGES or is_negation(word) for word in lower) else sign


def _is_unit(tail: str, has_currency: bool) -> bool:
    """Return whether the text behind the number only names what it counts."""
    glued = WORD.match(tail)
    tail = " ".join(REMARK.sub(r" \1 ", tail.replace("~", " ")).split())
    words = WORD.findall(tail)
    if UNIT.fullmatch(tail) is None or (glued is not None and glued[0] not in GLUED_UNITS):
        return False
    if words and words[-1].lower() in DANGLING:
        return False
    if has_currency and any(word in SCALES for word in words):
        return False
    return not _alters(words, TAIL_HEDGES, UNIT_LETTERS)


def _alters(
    words: Sequence[str], hedges: frozenset[str], letters: frozenset[str] = frozenset()
) -> bool:
    """Return whether words behind a number are a hedge, a number or a variable."""
    for place, word in enumerate(words):
        if word.lower() in hedges or is_negation(word) or ROMAN.fullmatch(word) is not None:
            return True
        is_article = word == "a" and place < len(words) - 1
        if len(word) == 1 and word not in letters and not is_article:
            return True
    return False
