"""Countdown: `3,5,8=23?` asks for an expression of the numbers, such as `3*5+8`, that is 23.

Each number is used exactly once, with `+ - * /` and brackets. Puzzles are generated: a numbered
train pool and a disjoint test set. A puzzle's gold is one of its solutions.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache

import numpy as np

from pods.types import Grade, Grader, Message, Parts, Problem, Task

SIZES = (3, 4)  # numbers of a puzzle, each from 1 to 9
LARGEST = 99
POOL_SEED = 2505
FORM = re.compile(r"[0-9+*/()-]{1,64}")  # so long at most, which bounds depth and value
OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


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


def grade(completion: str, gold: str) -> Grade:
    """Grade a completion: an expression of the numbers that is the target; the reward is 0 or 1."""
    off = distance(completion, gold)
    verdict = "none" if off is None else "wrong" if off else "right"
    return Grade(verdict, off is not None, Parts(float(verdict == "right")))


def graded(problem: Problem, completion: str) -> float:
    """Return 1 / (1 + distance to the target), or 0 where the numbers are not used once each.

    >>> problem = Problem("p", (), "3*5+8")
    >>> [graded(problem, text) for text in ("8+5*3", "3*8-5", "8*5/3", "3*5", "23")]
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


@cache
def puzzles(train_size: int, test_size: int) -> tuple[dict[str, str], dict[str, str]]:
    """Draw the train pool and the test set; the test set depends on its own size alone."""
    rng, pool = np.random.default_rng(POOL_SEED), dict[str, str]()
    while len(pool) < test_size + train_size:
        pool.setdefault(*puzzle(rng))
    drawn = list(pool.items())
    return dict(drawn[test_size:]), dict(drawn[:test_size])


def load(train_size: int, test_size: int, few_shot: int = 0) -> Task:
    """Create the task; the same sizes give the same problems on every machine.

    A model that was not trained on puzzles may get `few_shot` solved examples before each question.
    """
    pools = puzzles(train_size, test_size)
    rng, examples = np.random.default_rng(POOL_SEED + 1), list[Message]()
    while len(examples) < 2 * few_shot:
        question, solution = puzzle(rng)
        if not any(question in pool for pool in pools):
            examples.append({"role": "user", "content": question})
            examples.append({"role": "assistant", "content": solution})
    train, test = (
        tuple(
            Problem(f"{split}-{i:04d}", (*examples, {"role": "user", "content": question}), gold)
            for i, (question, gold) in enumerate(pool.items())
        )
        for split, pool in zip(("train", "test"), pools, strict=True)
    )
    return Task("countdown", train, test, Grader(grade), Grader(grade))
