"""Countdown: `3,5,8=23?` asks for an expression of the numbers, such as `3*5+8`, that is 23.

Each number is used exactly once, with `+ - * /` and brackets. It is a task of one's own: the preset
`countdown` names `problems` and, as the reward, `nearness`. A puzzle's gold is one of its
solutions. The model is one of tiny's size, trained on right solutions of other puzzles:

    OMP_NUM_THREADS=1 python -m experiments.countdown.task tiny_countdown    # 3 min
"""

import ast
import operator
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from pods.types import Problem

SIZES = (3, 4)  # numbers of a puzzle, each from 1 to 9
LARGEST = 99
POOL_SEED = 2505
TRAIN_POOL, TEST_SET, HELD_OUT = 256, 256, 1024
ALPHABET = "0123456789+-*/()=,?"
FORM = re.compile(r"[0-9+*/()-]{1,64}")  # so long at most, which bounds depth and value
OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def evaluate(expression: str) -> tuple[Fraction, list[int]] | None:
    """Return the exact value of an expression and its numbers in order of size, running no code.

    Returns:
        None for all but brackets, integers and the four operators between two operands; also where
        it divides by zero or has over 64 characters.

    >>> evaluate("8/(3-1)+2"), evaluate("2**3"), evaluate("-1+2"), evaluate("1/0")
    ((Fraction(6, 1), [1, 2, 3, 8]), None, None, None)
    """
    if FORM.fullmatch(expression) is None:
        return None
    numbers = list[int]()

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            numbers.append(node.value)
            return Fraction(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError("not plain arithmetic")

    try:
        result = value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None
    return result, sorted(numbers)


def distance(completion: str, gold: str) -> Fraction | None:
    """Return how far a completion is from the target; None if it does not use the numbers once."""
    given, wanted = evaluate(completion.strip()), evaluate(gold)
    if given is None or wanted is None or given[1] != wanted[1]:
        return None
    return abs(given[0] - wanted[0])


def right(completion: str, gold: str) -> bool:
    """Return whether a completion is an expression of the numbers that is the target."""
    return distance(completion, gold) == 0


def nearness(problem: Problem, completion: str) -> float:
    """Return 1 / (1 + distance to the target), or 0 where the numbers are not used once each.

    >>> problem = Problem("p", (), "3*5+8")
    >>> [nearness(problem, text) for text in ("8+5*3", "3*8-5", "8*5/3", "3*5", "23")]
    [1.0, 0.2, 0.09375, 0.0, 0.0]
    """
    off = distance(completion, problem.gold)
    return 0.0 if off is None else float(1 / (1 + off))


def expression(numbers: list[int], rng: np.random.Generator) -> str:
    """Draw an expression of numbers, in their order: any operators, in any order of evaluation."""
    terms, tops = [str(number) for number in numbers], [""] * len(numbers)  # "" has no operator
    while len(terms) > 1:
        at, sign = int(rng.integers(len(terms) - 1)), "+-*/"[rng.integers(4)]
        left, right = terms[at : at + 2]
        if sign in "*/" and tops[at] in ("+", "-"):
            left = f"({left})"
        if (sign in "*/-" and tops[at + 1] in ("+", "-")) or (sign == "/" and tops[at + 1]):
            right = f"({right})"
        terms[at : at + 2], tops[at : at + 2] = [f"{left}{sign}{right}"], [sign]
    return terms[0]


def puzzle(rng: np.random.Generator) -> tuple[str, str]:
    """Draw a question, such as `3,5,8=23?`, and a solution of it."""
    while True:
        numbers = rng.integers(1, 10, rng.choice(SIZES))
        solution = expression(numbers.tolist(), rng)
        result = evaluate(solution)
        if result is not None and result[0].denominator == 1 and 1 <= result[0] <= LARGEST:
            return f"{','.join(map(str, result[1]))}={result[0]}?", solution


def puzzles(count: int) -> dict[str, str]:
    """Draw the first `count` questions, each with its solution."""
    rng, pool = np.random.default_rng(POOL_SEED), dict[str, str]()
    while len(pool) < count:
        pool.setdefault(*puzzle(rng))
    return pool


def problems() -> tuple[list[tuple[str, str]], list[tuple[str, str]], Callable[[str, str], bool]]:
    """Return the train pool, the test set and the grader, as `task.make` asks for them."""
    drawn = list(puzzles(TEST_SET + TRAIN_POOL).items())
    return drawn[TEST_SET:], drawn[:TEST_SET], right


def main(folder: Path) -> None:
    """Train a model on puzzles that are in no test set."""
    from experiments.quickstart.recipe import make_tokenizer, train  # loads torch

    held_out = puzzles(HELD_OUT)

    def draw(rng: np.random.Generator) -> tuple[str, str]:
        question, solution = puzzle(rng)
        while question in held_out:
            question, solution = puzzle(rng)
        return question, solution

    train(folder, draw, make_tokenizer(ALPHABET))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
