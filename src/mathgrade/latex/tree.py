"""The syntax tree of an answer, and the operations that build it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mathgrade.latex.symbols import SET_LETTERS
from mathgrade.latex.tokens import Rejected

STRUCTURES = ("tuple", "set", "union", "matrix", "relation", "list", "text", "unit", "numeral")
"""Kinds of node that arithmetic does not accept. An interval is a `tuple` with its two brackets as
text, and a `numeral` has a base."""
INFINITY = r"\infty"
NOT_ARITHMETIC = (INFINITY, *SET_LETTERS)
"""Constants that arithmetic does not accept: they are equal to themselves only."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A node: its kind, its children, and its own text, such as a number or a function's name."""

    kind: str
    parts: tuple["Tree", ...] = ()
    text: str = ""


def number(value: int | str) -> Tree:
    """Return the node of a number."""
    return Tree("number", text=str(value))


def operation(kind: str, *parts: Tree, text: str = "") -> Tree:
    r"""Apply an arithmetic operation; on a plus-minus it gives a plus-minus.

    >>> operation("negative", operation("plus_minus", number(1), number(2))).kind
    'plus_minus'

    Raises:
        Rejected: an operand is not a value that arithmetic accepts.
    """
    if any(part.kind in STRUCTURES or part.text in NOT_ARITHMETIC for part in parts):
        if kind == "negative" and parts[0].text == INFINITY:
            return Tree(kind, parts)
        raise Rejected("wrong")
    return Tree(kind, parts) if kind == "plus_minus" else distribute(kind, parts, text)


def distribute(kind: str, parts: tuple[Tree, ...], text: str = "") -> Tree:
    """Build a node; if a child is a plus-minus, build a plus-minus of two such nodes.

    Raises:
        Rejected: there is more than one plus-minus.
    """
    double = [index for index, part in enumerate(parts) if part.kind == "plus_minus"]
    if not double:
        return Tree(kind, parts, text)
    if len(double) > 1 or kind in ("tuple", "union", "row"):
        raise Rejected("refused")
    at = double[0]
    halves = (Tree(kind, (*parts[:at], half, *parts[at + 1 :]), text) for half in parts[at].parts)
    return Tree("plus_minus", tuple(halves))


def split_plus_minus(parts: Iterable[Tree]) -> tuple[Tree, ...]:
    """Return the elements of a list or set; a plus-minus counts as two."""
    return tuple(
        one for part in parts for one in (part.parts if part.kind == "plus_minus" else (part,))
    )


def signed(sign: str | None, value: Tree) -> Tree:
    """Apply a sign to a value; None is no sign."""
    if sign == "-":
        return operation("negative", value)
    if sign == r"\pm":
        return operation("plus_minus", value, operation("negative", value))
    return value


def nodes(tree: Tree) -> Iterator[Tree]:
    """Yield every node of a tree."""
    yield tree
    for part in tree.parts:
        yield from nodes(part)


def variables(tree: Tree) -> set[str]:
    """Return the names of the variables in a tree."""
    return {node.text for node in nodes(tree) if node.kind == "variable"}


def normal_form(tree: Tree) -> Tree:
    r"""Flatten and sort sums and products, so that `2\pi` is the same tree as `\pi\cdot 2`."""
    parts = [normal_form(part) for part in tree.parts]
    if tree.kind in ("sum", "product"):
        flat: list[Tree] = []
        for part in parts:
            flat.extend(part.parts if part.kind == tree.kind else (part,))
        parts = sorted(flat, key=repr)
    return Tree(tree.kind, tuple(parts), tree.text)
