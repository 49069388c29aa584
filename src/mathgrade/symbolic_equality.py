"""Proofs of equality by computer algebra; imported in the worker process only.

math-verify parses, and simplifies a difference to see whether it is zero. The rest of its
comparison is not used: it accepts values that are merely close (1/2006! and 1/2004!), any two
equations without solutions, `x = 5` for 5 always, and `ab` for a symbol of that name.
"""

from typing import Any

import mpmath.libmp
import sympy
import sympy.external.gmpy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from math_verify import grader

from mathgrade.open_r1 import accepts

WARM_UP = (
    r"1+\frac{1}{2}\cdot x",
    r"\frac{\sqrt{3}}{2}+(-1)\cdot \pi",
    r"2\cdot \sqrt{5}+(-1)\cdot 3",
    r"\frac{(-1)\cdot b+\sqrt{(b)^{2}+(-1)\cdot 4\cdot a\cdot c}}{2\cdot a}",
    r"(x+1)\cdot (x+(-2))",
    r"(x)^{3}+(-1)\cdot 2\cdot (x)^{2}+x+(-\frac{1}{3})",
    r"(e)^{2\cdot x}+(e)^{(-1)}",
    r"1+2\cdot I",
    r"\pi\cdot (x)^{2}+\frac{\pi}{4}",
    r"\sin(\frac{\pi}{3})+\cos(2\cdot x)",
    r"(2)^{\frac{1}{3}}",
    r"(x)^{\frac{3}{2}}\cdot y",
    r"(\sin(x))^{2}+\tan(30\cdot\frac{\pi}{180})",
    r"\log_{2}(3)+\ln(x)",
    r"\log(\frac{x}{2})",
    r"|x+(-1)|",
    r"\lfloor x \rfloor+\lceil x \rceil",
    r"(n)!+\binom{n}{2}",
    r"(x+y)^{2}",
    r"\frac{x+1}{(x+(-1))\cdot y}",
    r"\sqrt{\frac{x}{y}}",
    r"\frac{1}{\sqrt{2}+1}",
    r"\arctan(\frac{1}{2})",
)
"""Shapes that the parser caches before the worker forks: it is slow on a shape that is new."""
SAMPLE_POINTS = (
    (19, 29, 11, 37, 13, 17, 43, 9, 31, 23, 47, 41),
    (59, 15, 53, 21, 67, 61, 25, 71, 33, 73, 27, 79),
)
"""Numerators, over 8, of two points at which expressions of up to 12 variables are evaluated. They
are unlikely to be a zero or a pole."""
CERTAIN_BITS = 40  # of precision, for a number that is not zero; evalf reports what it reached
CONVERSION = ConversionConfig(lowercase_symbols=False)
FORBIDDEN = (
    sympy.Float,
    sympy.core.function.AppliedUndef,
    sympy.Integral,
    sympy.Derivative,
    sympy.nan,
    sympy.zoo,
    sympy.oo,
    -sympy.oo,
)


def seed_sympy() -> None:
    """Make sympy draw the same numbers in every process; else its work differs by a percent."""
    sympy.core.random.seed(0)


def warm_up() -> None:
    """Import what is imported late, and let the parser and sympy meet usual expressions.

    Raises:
        ImportError: sympy computes with gmpy2 or flint, whose long steps cannot be interrupted.
    """
    if mpmath.libmp.BACKEND != "python" or sympy.external.gmpy.GROUND_TYPES != "python":
        raise ImportError("sympy and mpmath must compute in pure Python in a grading worker")
    for latex in WARM_UP:
        parsed = expression(latex)
        equal(parsed + 1, parsed)
    equal(expression("(x+1)^{2}"), expression(r"(x)^{2}+2\cdot x+1"))
    accepts(r"The answer is \boxed{\frac{1}{2}}.", "1")  # compiles its regular expressions


def holds(goal: Any) -> bool:
    """Return whether a goal of `latex/goals.py` is proved; an undecided goal does not hold."""
    if isinstance(goal, bool):
        return goal
    kind, *rest = goal
    if kind == "open_r1":
        return accepts(*rest)
    if kind == "same":
        return equal(expression(rest[0]), expression(rest[1]))
    if kind == "ratio":
        return proportional(expression(rest[0]), expression(rest[1]), positive=rest[2])
    if kind == "all":
        return all(map(holds, rest[0]))
    return _matches(rest[0])


def expression(latex: str) -> sympy.Expr:
    """Parse LaTeX; the parser reads to the end of the text or raises.

    Raises:
        ValueError: the text is not a finite, exact expression in variables of one letter.
    """
    parsed = latex2sympy(
        latex, is_real=True, normalization_config=None, conversion_config=CONVERSION
    )
    parsed = parsed.doit() if isinstance(parsed, sympy.Expr) else parsed
    letters = isinstance(parsed, sympy.Expr) and all(len(s.name) == 1 for s in parsed.free_symbols)
    if not letters or parsed.has(*FORBIDDEN):
        raise ValueError("not an expression")
    return parsed


def equal(one: sympy.Expr, other: sympy.Expr) -> bool:
    """Return whether expressions are equal by structure, or their difference is exactly zero."""
    if one == other:
        return True
    if _differs_at_a_point(one - other):
        return False
    return bool(grader.sympy_symbolic_eq(one, other)) or _is_algebraic_zero(one - other)


def proportional(one: sympy.Expr, other: sympy.Expr, positive: bool) -> bool:
    """Return whether the first expression is the second times a nonzero constant.

    Args:
        one: the first expression.
        other: the second expression.
        positive: require a positive constant.
    """
    values = [(_evaluate(one, point), _evaluate(other, point)) for point in SAMPLE_POINTS]
    (a, b), (c, d) = values
    all_nonzero = all(map(_certainly_nonzero, (a, b, c, d)))
    if all_nonzero and _certainly_nonzero((a * d - b * c).evalf(30)):
        return False
    if equal(one, sympy.S.Zero) or equal(other, sympy.S.Zero):
        return False
    ratio = sympy.simplify(one / other)
    return bool(not ratio.free_symbols and (ratio.is_positive if positive else ratio.is_nonzero))


def _matches(table: list[list[Any]]) -> bool:
    """Return whether every row can have a column of its own in which its goal holds.

    Equality is transitive, so the first column that holds will do.
    """
    free = set(range(len(table)))
    for row in table:
        column = next((index for index in sorted(free) if holds(row[index])), None)
        if column is None:
            return False
        free.remove(column)
    return True


def _evaluate(expr: sympy.Expr, point: tuple[int, ...]) -> sympy.Expr:
    symbols = sorted(expr.free_symbols, key=lambda symbol: symbol.name)
    values = [sympy.Rational(numerator, 8) for numerator in point]
    return expr.subs(dict(zip(symbols, values, strict=False)))


def _certainly_nonzero(number: sympy.Expr) -> bool:
    """Return whether a number is certainly not zero; False where there is any doubt."""
    if number.is_Rational:
        return bool(number != 0)
    parts = number.evalf(30).as_real_imag()
    return any(part.is_Float and part != 0 and part._prec >= CERTAIN_BITS for part in parts)


def _differs_at_a_point(difference: sympy.Expr) -> bool:
    return any(_certainly_nonzero(_evaluate(difference, point)) for point in SAMPLE_POINTS)


def _is_algebraic_zero(difference: sympy.Expr) -> bool:
    """Return whether an algebraic number is zero, by its minimal polynomial."""
    if difference.free_symbols or not difference.is_algebraic:
        return False
    x = sympy.Symbol("x")
    return bool(sympy.minimal_polynomial(difference, x) == x)
