r"""Trees as LaTeX that can be read in one way only."""

from collections.abc import Iterable
from fractions import Fraction

from mathgrade.latex.tree import Tree, number
from mathgrade.latex.values import rational_value

LETTERS = "xyzuvwabckmnpq"
"""Letters for variables; the worker's parser reads d, e, f, i and some others as other things."""
FORMATS = {
    "floor": r"\lfloor {0} \rfloor",
    "ceil": r"\lceil {0} \rceil",
    "abs": "|{0}|",
    "quotient": r"\frac{{{0}}}{{{1}}}",
    "binomial": r"\binom{{{0}}}{{{1}}}",
    "factorial": "({0})!",
    "power": "({0})^{{{1}}}",
    "degrees": r"{0}\cdot\frac{{\pi}}{{180}}",
    "negative": r"(-1)\cdot {0}",
}
SIGNS = {"sum": "+", "product": r"\cdot "}


class Printer:
    """Prints trees; a variable becomes the same letter in all of them."""

    def __init__(self, variables: Iterable[str]) -> None:
        self.letters = dict(zip(sorted(variables), LETTERS, strict=False))

    def __call__(self, tree: Tree) -> str:
        """Print a tree; a subtree with a rational value is printed as that value."""
        value = rational_value(tree)
        if value is not None:
            return _rational(value)
        if tree.kind in ("variable", "constant"):
            return self.letters.get(tree.text, "I" if tree.text == "i" else tree.text)
        if tree.kind == "root":
            return self._root(*tree.parts)
        parts = [self(part) for part in tree.parts]
        if tree.kind in ("product", "degrees", "negative"):
            parts = [
                f"({text})" if part.kind == "sum" else text
                for part, text in zip(tree.parts, parts, strict=True)
            ]
        if tree.kind in SIGNS:
            return SIGNS[tree.kind].join(parts)
        if tree.kind == "call":
            base = f"_{{{parts[1]}}}" if len(parts) == 2 else ""
            return f"{tree.text}{base}({parts[0]})"
        return FORMATS[tree.kind].format(*parts)

    def _root(self, radicand: Tree, index: Tree) -> str:
        """Print a root; of a negative number the real one, since the parser takes the principal."""
        value, degree = rational_value(radicand), rational_value(index)
        if degree == 2:
            return rf"\sqrt{{{self(radicand)}}}"
        if value is not None and value < 0 and degree is not None and degree % 2 == 1:
            return rf"(-1)\cdot {self._root(number(str(-value)), index)}"
        return f"({self(radicand)})^{{{self(Tree('quotient', (number(1), index)))}}}"


def _rational(value: Fraction) -> str:
    above, below = abs(value.numerator), value.denominator
    text = str(above) if below == 1 else rf"\frac{{{above}}}{{{below}}}"
    return f"(-{text})" if value < 0 else text
