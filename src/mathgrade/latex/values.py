"""Exact rational values of trees, and limits on trees that are too large to compare.

Every number is bounded before it is computed, so that no power, factorial or binomial coefficient
takes time or memory. Nothing is rounded: a value is a fraction, or unknown.
"""

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial, prod

from mathgrade.latex.tokens import Rejected
from mathgrade.latex.tree import Tree, nodes, variables

MAX_BITS = 4096  # of a numerator or denominator
MAX_EXPONENT = 10_000  # of a variable
MAX_SUM_EXPONENT = 12  # of an expression that may have to be multiplied out
MAX_FACTORIAL = 300
MAX_ROOTS = 4  # inside each other
MAX_NODES = 200
MAX_VARIABLES = 12


def rational_value(tree: Tree) -> Fraction | None:
    r"""Return the exact value if arithmetic finds that it is rational, else None.

    >>> from mathgrade.latex.parser import parse
    >>> from mathgrade.latex.tokens import tokenize
    >>> [rational_value(parse(tokenize(text))) for text in (r"3\frac12", r"\sqrt{2}")]
    [Fraction(7, 2), None]

    Raises:
        Rejected: refused, if a number in it is too large; wrong, if it is undefined.
    """
    if tree.kind == "number":
        return _decimal(tree.text)
    parts = [rational_value(part) for part in tree.parts]
    if tree.kind == "power":
        return _power(tree.parts[0], parts[0], tree.parts[1], parts[1])
    if tree.kind == "quotient" and parts[1] == 0:
        raise Rejected("wrong")
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or tree.kind not in OPERATIONS:
        return None
    value = OPERATIONS[tree.kind](*known)
    if value is not None and max(_bits(value.numerator), _bits(value.denominator)) > MAX_BITS:
        raise Rejected("refused")
    return value


def check_size(tree: Tree) -> None:
    """Reject a tree that would take a worker long for its size alone.

    Raises:
        Rejected: the tree has too many nodes or variables, or too many roots inside each other.
    """
    size = sum(1 for _ in nodes(tree))
    if size > MAX_NODES or len(variables(tree)) > MAX_VARIABLES or _nested_roots(tree) > MAX_ROOTS:
        raise Rejected("refused")


def _decimal(text: str) -> Fraction:
    plain, _, repeated = text.partition("r")
    value = Fraction(f"0{plain}" if plain.startswith(".") else plain.rstrip("."))
    if repeated:
        decimals = len(plain.partition(".")[2])
        value += Fraction(int(repeated), 10**decimals * (10 ** len(repeated) - 1))
    return value


def _power(
    base: Tree, base_value: Fraction | None, exponent: Tree, exponent_value: Fraction | None
) -> Fraction | None:
    """Compute a power with a small exponent; a fractional exponent needs a perfect power."""
    if exponent_value is None:
        if _nested_powers(exponent) > (1 if variables(exponent) else 0):
            raise Rejected("refused")
        return None
    if base_value is None:
        limit = MAX_EXPONENT if base.kind == "variable" else MAX_SUM_EXPONENT
        if abs(exponent_value) > limit:
            raise Rejected("refused")
        return None
    if base_value == 0 and exponent_value <= 0:
        raise Rejected("wrong")
    size = max(_bits(base_value.numerator), _bits(base_value.denominator)) - 1
    if base_value not in (0, 1, -1) and abs(exponent_value) * max(size, 1) > MAX_BITS:
        raise Rejected("refused")
    if exponent_value.denominator > 1:
        root = None
        if base_value >= 0:
            root = _root(base_value, Fraction(exponent_value.denominator))
        return None if root is None or root == 0 else root**exponent_value.numerator
    return Fraction(base_value ** int(exponent_value % 2 if base_value == -1 else exponent_value))


def _root(radicand: Fraction, index: Fraction) -> Fraction | None:
    """Return the real root if it is rational."""
    if index.denominator > 1 or not 2 <= index <= 64:
        return None
    if radicand < 0:
        positive = _root(-radicand, index) if index % 2 else None
        return None if positive is None else -positive
    above = _integer_root(radicand.numerator, int(index))
    below = _integer_root(radicand.denominator, int(index))
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(number: int, index: int) -> int | None:
    """Return the root of a perfect power, by bisection; None if it is not one."""
    low, high = 0, 1 << (_bits(number) // index + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**index < number else (low, middle)
    return low if low**index == number else None


def _factorial(number: Fraction) -> Fraction | None:
    if number.denominator > 1 or number < 0:
        return None
    if number > MAX_FACTORIAL:
        raise Rejected("refused")
    return Fraction(factorial(int(number)))


def _binomial(above: Fraction, below: Fraction) -> Fraction | None:
    if above.denominator > 1 or below.denominator > 1 or above < 0:
        return None
    if above > MAX_FACTORIAL:
        raise Rejected("refused")
    return Fraction(comb(int(above), int(below)) if below >= 0 else 0)


def _bits(number: int) -> int:
    return abs(number).bit_length()


def _nested_roots(tree: Tree) -> int:
    """Count the roots that stand inside each other."""
    return (tree.kind == "root") + max((_nested_roots(part) for part in tree.parts), default=0)


def _nested_powers(tree: Tree) -> int:
    """Count the powers that stand in each other's exponents."""
    below = [_nested_powers(part) for part in tree.parts]
    if tree.kind == "power":
        below[1] += 1
    return max(below, default=0)


OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "negative": lambda x: -x,
    "sum": lambda *terms: sum(terms, Fraction()),
    "product": lambda *factors: prod(factors, start=Fraction(1)),
    "quotient": lambda x, y: x / y,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
    "abs": abs,
    "floor": lambda x: Fraction(x // 1),
    "ceil": lambda x: Fraction(-(-x // 1)),
}
