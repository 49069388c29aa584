r"""The parser: a strict grammar of answers, from tokens to a syntax tree.

An answer is a comma list of values, relations, tuples, intervals, sets, unions or matrices. What
the grammar does not know (integrals, limits, sums, dots, words) is refused, and what breaks it is
wrong. Nesting is limited, so that no answer exhausts the stack.
"""

from collections.abc import Sequence
from math import prod

from mathgrade.latex.atoms import FENCES, argument, atom, decimal
from mathgrade.latex.cursor import Cursor
from mathgrade.latex.symbols import FUNCTIONS, GREEK
from mathgrade.latex.tokens import Rejected
from mathgrade.latex.tree import STRUCTURES, Tree, distribute, number, operation, signed

RELATIONS = ("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\in")
FACTOR_STARTS = ("(", "[", "{", r"\lfloor", r"\lceil", r"\frac", r"\sqrt", r"\binom", r"\pi")
INVERTIBLE = (r"\sin", r"\cos", r"\tan")  # their -1st power is the inverse function


def parse(tokens: Sequence[str]) -> Tree:
    r"""Parse tokens as one answer.

    >>> parse(["x", "^", "2"]).kind, parse(["(", "1", ",", "2", "]"]).text
    ('power', '(]')

    Raises:
        Rejected: refused, if the answer is of a kind that is not graded; wrong, if it is malformed.
    """
    if len(tokens) > 2 and tokens[0].startswith('"') and tokens[1] == "=":
        tokens = tokens[2:]  # words that name what the value is of
    if tokens and tokens[0].startswith('"'):
        return Tree("text")
    cursor = Cursor(list(tokens))
    elements, separators = [_element(cursor)], set[str]()
    while separator := cursor.separator():
        if separator == "," and not cursor.next and len(elements) > 1:
            break
        separators.add(separator)
        elements.append(_element(cursor))
    if cursor.next:
        raise cursor.unexpected()
    word = "".join(sorted(separators - {","}))  # `and`, `or`, neither, or both joined: no meaning
    return elements[0] if len(elements) == 1 else Tree("list", tuple(elements), word)


def _element(cursor: Cursor) -> Tree:
    """Parse a value, or values with relations between them."""
    parts, relations = [_union(cursor)], []
    while relation := cursor.take(*RELATIONS):
        relations.append(relation)
        parts.append(_union(cursor))
    return distribute("relation", tuple(parts), " ".join(relations)) if relations else parts[0]


def _union(cursor: Cursor) -> Tree:
    parts = [_measured(cursor)]
    while cursor.take(r"\cup"):
        parts.append(_measured(cursor))
    return distribute("union", tuple(parts)) if len(parts) > 1 else parts[0]


def _measured(cursor: Cursor) -> Tree:
    """Parse a value and its unit: currency before it; degrees, percent or words after it."""
    sign = cursor.take("-") if cursor.next_are("-", r"\$") else None
    words = ["dollar"] if cursor.take(r"\$") else []
    value = signed(sign, parse_sum(cursor))
    if value.kind == "degrees":
        value, words = value.parts[0], [*words, "degree"]
    while cursor.next == "%" or cursor.next.startswith('"'):
        words.append(cursor.pop().lstrip('"'))
        if cursor.take("^"):
            words[-1] += f"^{_unit_power(cursor)}"
    if words and value.kind in STRUCTURES:
        raise Rejected("wrong")
    return distribute("unit", (value,), " ".join(words)) if words else value


def _unit_power(cursor: Cursor) -> str:
    """Parse the exponent of a unit, as in square centimetres."""
    braced, digit = cursor.take("{"), cursor.take("2", "3")
    if digit is None:
        raise cursor.unexpected()
    if braced:
        cursor.expect("}")
    return digit


def parse_sum(cursor: Cursor) -> Tree:
    """Parse terms with signs between them."""
    terms = [signed(cursor.take("+", "-", r"\pm"), _product(cursor))]
    while sign := cursor.take("+", "-", r"\pm"):
        inner = cursor.take("-")  # as in 5 - -3
        terms.append(signed(sign, signed(inner, _product(cursor))))
    return terms[0] if len(terms) == 1 else operation("sum", *terms)


def _product(cursor: Cursor) -> Tree:
    """Parse factors, with or without signs of multiplication and division."""
    factors, divided = [_factor(cursor)], False
    while True:
        if cursor.take(r"\cdot"):
            factors.append(_signed_factor(cursor))
        elif divided and (cursor.next in ("/", r"\div") or _starts_factor(cursor)):
            raise Rejected("wrong")  # 1/2x and 1/2/3 are ambiguous
        elif cursor.take("/", r"\div"):
            divided = True
            factors = [operation("quotient", _multiply(factors), _signed_factor(cursor))]
        elif cursor.next_is_number or cursor.next_is_digit_group():  # as in 1 8, x 2 and 1{8}
            raise Rejected("wrong")
        elif _starts_factor(cursor):
            factors.append(_factor(cursor))
        else:
            return _multiply(factors)


def _multiply(factors: Sequence[Tree]) -> Tree:
    return factors[0] if len(factors) == 1 else operation("product", *factors)


def _signed_factor(cursor: Cursor) -> Tree:
    return signed(cursor.take("-"), _factor(cursor))


def _starts_factor(cursor: Cursor) -> bool:
    """Return whether the next token can start a factor that is multiplied without a sign."""
    token = cursor.next
    if token == "|":
        return not cursor.bar_closes
    known = token in GREEK or token in FUNCTIONS or token in FACTOR_STARTS
    return known or cursor.next_is_number or token.isalpha()


def _factor(cursor: Cursor) -> Tree:
    """Parse a value with its powers, factorials and degree signs."""
    with cursor.nested():
        is_call = cursor.next in FUNCTIONS
        value = _call(cursor) if is_call else atom(cursor, parse_sum)
        raised = value.kind == "power" and is_call
        while cursor.next in ("^", "!"):
            if cursor.next == "^" and raised:  # a^b^c is ambiguous
                raise Rejected("wrong")
            raised = cursor.next == "^"
            value = _power(cursor, value) if cursor.take("^") else _factorial(cursor, value)
    return value


def _factorial(cursor: Cursor, value: Tree) -> Tree:
    cursor.expect("!")
    if cursor.next == "!":  # a double factorial is not the factorial of one
        raise Rejected("refused")
    return operation("factorial", value)


def _power(cursor: Cursor, value: Tree) -> Tree:
    if cursor.next_are(r"\circ") or cursor.next_are("{", r"\circ", "}"):
        cursor.position += 1 if cursor.next_are(r"\circ") else 3
        return operation("degrees", value)
    if value.kind == "degrees":
        raise Rejected("wrong")
    exponent = _exponent(cursor)
    if value.kind == "power":
        exponents = [_small_integer(part) for part in (value.parts[1], exponent)]
        if None not in exponents:  # (x^2)^3 is x^6; that holds for whole numbers only
            return operation("power", value.parts[0], number(prod(filter(None, exponents))))
    return operation("power", value, exponent)


def _small_integer(tree: Tree) -> int | None:
    """Return a positive whole number of up to four digits, or None for anything else."""
    known = tree.kind == "number" and tree.text.isdigit() and len(tree.text) < 5
    return int(tree.text) or None if known else None


def _exponent(cursor: Cursor) -> Tree:
    """Parse a group, or the number or symbol that follows."""
    if cursor.next == "{":
        return argument(cursor, parse_sum)
    sign = cursor.take("-")
    value = decimal(cursor.pop()) if cursor.next_is_number else argument(cursor, parse_sum)
    return signed(sign, value)


def _call(cursor: Cursor) -> Tree:
    """Parse a function and its argument: a bracket, or the factors that follow."""
    name = cursor.pop()
    base = [argument(cursor, parse_sum)] if name == r"\log" and cursor.take("_") else []
    exponent = _exponent(cursor) if cursor.take("^") else None
    if exponent == operation("negative", number(1)):
        if name not in INVERTIBLE:
            raise Rejected("refused")
        name, exponent = rf"\arc{name[1:]}", None
    if name == r"\exp":
        call = operation("power", Tree("constant", text="e"), _call_argument(cursor))
    else:
        call = operation("call", _call_argument(cursor), *base, text=name)
    return call if exponent is None else operation("power", call, exponent)


def _call_argument(cursor: Cursor) -> Tree:
    if cursor.next in ("(", "[", "{", *FENCES):
        return atom(cursor, parse_sum)
    sign, factors = cursor.take("-"), [_factor(cursor)]
    while _starts_factor(cursor) and cursor.next not in ("(", "[", "|", *FUNCTIONS):
        if cursor.next_is_number:
            raise Rejected("wrong")
        factors.append(_factor(cursor))
    if cursor.next in ("/", r"\div"):  # sin a/b is ambiguous
        raise Rejected("wrong")
    return signed(sign, _multiply(factors))
