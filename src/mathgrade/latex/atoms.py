"""Parsing of the smallest values: numbers, variables, brackets, fractions, roots, matrices."""

from collections.abc import Callable

from mathgrade.latex.cursor import Cursor
from mathgrade.latex.symbols import GREEK, SET_LETTERS
from mathgrade.latex.tokens import Rejected
from mathgrade.latex.tree import (
    INFINITY,
    STRUCTURES,
    Tree,
    distribute,
    number,
    operation,
    split_plus_minus,
)

MAX_CELLS = 36  # of a matrix
MAX_SUBSCRIPT = 5  # tokens
CONSTANTS = (r"\pi", "e", "i", INFINITY, *SET_LETTERS)
FENCES = {"|": ("abs", "|"), r"\lfloor": ("floor", r"\rfloor"), r"\lceil": ("ceil", r"\rceil")}
OF_TWO = {r"\frac": "quotient", r"\binom": "binomial"}
MATRICES = ("pmatrix", "bmatrix", "matrix", "Bmatrix")

ParseSum = Callable[[Cursor], Tree]
"""The parser of a sum, which is what brackets hold; handed down since sums are made of atoms."""


def atom(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse one value, without powers."""
    token = cursor.next
    if cursor.next_is_number:
        return _numeral(cursor, parse_sum)
    if token.isalpha() or token in GREEK or token in CONSTANTS:
        return _variable(cursor)
    if token in ("(", "["):
        return _bracket(cursor, parse_sum)
    return _fenced(cursor, parse_sum) if token in FENCES else _command(cursor, parse_sum)


def _command(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    if command := cursor.take(*OF_TWO):
        first = argument(cursor, parse_sum)
        return operation(OF_TWO[command], first, argument(cursor, parse_sum))
    if cursor.take(r"\sqrt"):
        return _root(cursor, parse_sum)
    if cursor.take(r"\{"):
        return Tree("set", split_plus_minus(_items(cursor, parse_sum, r"\}")))
    if cursor.take(r"\emptyset"):
        return Tree("set")
    if cursor.next == "{":
        return _group(cursor, parse_sum)
    return _matrix(cursor, parse_sum)


def _group(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse a group in braces; outside LaTeX, `{1, 2}` is a set."""
    cursor.expect("{")
    items = _items(cursor, parse_sum, "}")
    if not items:
        raise Rejected("wrong")
    return items[0] if len(items) == 1 else Tree("set", split_plus_minus(items))


def argument(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse a command's argument: a group in braces, or one digit, letter or command."""
    with cursor.nested():
        return number(cursor.digit()) if cursor.next_is_number else atom(cursor, parse_sum)


def decimal(token: str) -> Tree:
    """Return the node of a token that is a number."""
    return number(f"0{token}" if token.startswith(".") else token)


def _numeral(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse a number, alone, with its base, or with the fraction of a mixed number behind it."""
    first = decimal(cursor.pop())
    if cursor.take("_"):
        return Tree("numeral", (argument(cursor, parse_sum),), first.text)
    if not first.text.isdigit():
        return first
    if cursor.next_is_number and cursor.tokens[cursor.position + 1 : cursor.position + 2] == ["/"]:
        numerator = decimal(cursor.pop())
        cursor.expect("/")
        if not cursor.next_is_number:
            raise Rejected("wrong")
        fraction = operation("quotient", numerator, decimal(cursor.pop()))
    elif cursor.next == r"\frac":
        fraction = atom(cursor, parse_sum)
    else:
        return first
    if any(part.kind != "number" or not part.text.isdigit() for part in fraction.parts):
        return operation("product", first, fraction)
    above, below = fraction.parts
    if not 0 < int(above.text) < int(below.text):  # 2 3/2 is ambiguous
        raise Rejected("wrong")
    return operation("sum", first, fraction)


def _variable(cursor: Cursor) -> Tree:
    text = cursor.pop()
    if text in CONSTANTS:
        return Tree("constant", text=text)
    if cursor.take("_"):
        if cursor.take("{"):
            subscript = [cursor.pop() for _ in range(MAX_SUBSCRIPT) if cursor.next not in ("}", "")]
            cursor.expect("}")
        else:
            subscript = [cursor.digit() if cursor.next_is_number else cursor.pop()]
        text += f"_{{{' '.join(subscript)}}}"
    while cursor.take("'"):
        text += "'"
    return Tree("variable", text=text)


def _bracket(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse a value in brackets, a tuple or an interval."""
    left = cursor.pop()
    with cursor.nested(bar_closes=False):
        items = [parse_sum(cursor)]
        while cursor.separator():
            items.append(parse_sum(cursor))
    right = cursor.take(")", "]")
    if right is None:
        raise cursor.unexpected()
    if len(items) == 2 or (len(items) > 2 and left + right in ("()", "[]")):
        return distribute("tuple", tuple(items), left + right)
    if len(items) > 1 or left + right not in ("()", "[]") or items[0].kind in STRUCTURES:
        raise Rejected("wrong")
    return items[0]


def _items(cursor: Cursor, parse_sum: ParseSum, end: str) -> tuple[Tree, ...]:
    items: list[Tree] = []
    with cursor.nested(bar_closes=False):
        while not cursor.take(end):
            if items and not cursor.separator():
                raise cursor.unexpected()
            items.append(parse_sum(cursor))
    return tuple(items)


def _fenced(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    kind, end = FENCES[cursor.pop()]
    with cursor.nested(bar_closes=kind == "abs"):
        content = parse_sum(cursor)
    cursor.expect(end)
    return operation(kind, content)


def _root(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    index = number(2)
    if cursor.take("["):
        index = parse_sum(cursor)
        cursor.expect("]")
    if cursor.next.isdigit() and len(cursor.next) > 1:  # \sqrt12 is ambiguous
        raise Rejected("refused")
    return operation("root", argument(cursor, parse_sum), index)


def _matrix(cursor: Cursor, parse_sum: ParseSum) -> Tree:
    """Parse rows of equal length; the kind of bracket does not matter."""
    token = cursor.next
    name = token[len(r"\begin{") : -1]
    if token != rf"\begin{{{name}}}":
        raise cursor.unexpected()
    if name not in MATRICES:
        raise Rejected("refused")
    cursor.expect(token)
    rows: list[list[Tree]] = [[]]
    with cursor.nested(bar_closes=False):
        while not cursor.take(rf"\end{{{name}}}"):
            if rows[-1]:
                separator = cursor.take("&", r"\\")
                if separator is None:
                    raise cursor.unexpected()
                if separator == r"\\":
                    rows.append([])
                    continue
            rows[-1].append(parse_sum(cursor))
            if sum(map(len, rows)) > MAX_CELLS:
                raise Rejected("refused")
    rows = rows if rows[-1] else rows[:-1]
    if not rows or len({len(row) for row in rows}) > 1:
        raise Rejected("wrong")
    return Tree("matrix", tuple(distribute("row", tuple(row)) for row in rows))
