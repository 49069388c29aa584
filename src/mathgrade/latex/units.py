r"""Units beside a value: `5 cm`, `5\text{ centimeters}` and `5` agree, `5 m` and `5 cm` do not."""

import re

from mathgrade.latex.tokens import Rejected
from mathgrade.number_words import UNIT_HEDGES, word_set

MAX_WORDS = 6
WORD = re.compile(r"([a-zA-Z]+)(\^[23])?")
CLOCK = re.compile(r"\b([ap])\.? ?m\b\.?", re.IGNORECASE)
UNITS = """
    cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre, m meter metre,
    in inch inche, ft foot feet, yd yard, mi mile, s second sec, min minute, h hour hr, d day,
    g gram, kg kilogram, mg, lb pound, oz ounce, l liter litre, ml milliliter millilitre,
    c celsius, f fahrenheit, degree deg, rad radian, percent percentage, dollar usd, cent, am, pm,
    week, month, year, acre
"""
"""Each unit's short name, and the other names of it."""
SHORT = {word: names.split()[0] for names in UNITS.split(",") for word in names.split()}
POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
EMPTY = ("unit", "the", "a", "of")
NOUNS = word_set("""
    people persons person children men women mice geese fish sheep deer teeth oxen dice area
    volume length money fruit water
""")
"""Nouns that count or measure without an s at their end."""
OPERATIONS = """
    factorial reciprocal inverse opposite choose complement conjugate transpose infinity modulo
    squared cubed power powers sum product quotient difference remainder root logarithm increase
    decrease base binary decimal octal hexadecimal even odd"""
COMPARISONS = """
    less greater more fewer below above under over beyond within short long exclusive inclusive
    versus through until upto onwards upwards downwards towards between exceeds equals remains
    larger smaller higher lower better"""
MULTIPLIERS = """
    quarter double triple quadruple twice thrice pair gross fold couple half one two three four
    six seven eight nine ten hundred thousand million billion trillion dozen"""
RETRACTIONS = """
    wait hmm oops sorry impossible unsolvable otherwise fail guess then mistake error wrong
    undefined unknown unclear invalid always perhaps sometimes afterwards besides is was has does
    this thus yes scratch undetermined"""
GREEK = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma
    tau upsilon phi chi psi omega"""
NEVER_UNITS = UNIT_HEDGES | word_set(OPERATIONS + COMPARISONS + MULTIPLIERS + RETRACTIONS + GREEK)
"""Words that rule out a unit whatever stands beside them."""
INCOMPLETE = word_set("of per to for by at out from with on as than the a")
"""Words behind which something is missing."""


def unit(text: str) -> str:
    """Return the normal form of a unit; empty for none, or for the word `units`.

    >>> unit("square centimeters"), unit("cm^2"), unit("units")
    ('cm^2', 'cm^2', '')

    Raises:
        Rejected: these words are not a unit, since they change the number or retract it.
    """
    names, power = list[str](), ""
    words = _split(text)
    for word in words:
        match = WORD.fullmatch(word.lower())
        if match is None or len(names) >= MAX_WORDS or _never_unit(match[1]):
            raise Rejected("wrong")
        if match[1] in POWERS:
            power = POWERS[match[1]]
            continue
        short = _short_name(match[1]) or match[1].removesuffix("s")
        if short not in EMPTY and names[-1:] != [short]:  # $5 dollars are dollars
            names.append(short + (match[2] or power))
        power = ""
    if power or (words and words[-1].lower() in INCOMPLETE):
        raise Rejected("wrong")
    return " ".join(names)


def is_plausible(text: str) -> bool:
    """Return whether words can be a unit where the gold has none: known words, or a plural.

    >>> [is_plausible(text) for text in ("cm^2", "green apples", "wait", "unsolvable")]
    [True, True, False, False]
    """
    words = [match[1] for match in map(WORD.fullmatch, _split(text)) if match]
    if any(
        not (word.islower() and len(word) > 2) and not _short_name(word.lower())
        for word in words
        if word.lower() not in ("per", *EMPTY, *POWERS)
    ):
        return False
    return not words or _is_head(words[-1].lower())


def agree(one: str, other: str) -> bool:
    """Return whether two units are equal, one is left out, or one omits what money is paid for.

    >>> agree("dollar", "dollar per h"), agree("cm", ""), agree("m per s", "s")
    (True, True, False)
    """
    money = {name for name in (one, other) if name.split()[:1] in (["dollar"], ["cent"])}
    if len(money) == 2:
        return one.partition(" per ")[0] == other.partition(" per ")[0] and (
            one == other or " per " not in one or " per " not in other
        )
    return one == other or not one or not other


def _split(text: str) -> list[str]:
    plain = CLOCK.sub(lambda match: f"{match[1].lower()}m", text)
    plain = re.sub(r"\\.|[.,()$\s]+", " ", plain).replace("%", " percent ").replace("/", " per ")
    return re.sub(r"\bmph\b", "miles per hour", plain).split()


def _never_unit(word: str) -> bool:
    if word in POWERS:
        return False
    return word in NEVER_UNITS or word.removesuffix("s") in NEVER_UNITS


def _short_name(word: str) -> str | None:
    """Return the short name of a known unit."""
    return SHORT.get(word) or SHORT.get(word.removesuffix("s"))


def _is_head(word: str) -> bool:
    """Return whether a unit can end in this word: a known unit, a plural, or one of NOUNS."""
    plural = word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return plural or word in NOUNS or word in EMPTY or _short_name(word) is not None
