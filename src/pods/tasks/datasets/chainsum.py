"""Chainsum: `7+8-4+1?` modulo ten, solved step by step; small enough for a laptop.

A right completion is `7+8=5;5-4=1;1+1=2;#2`. The train pool has a few hundred numbered problems, so
that epochs repeat and prompt selection has a history; the test set is disjoint.
"""

import re
from functools import cache

import numpy as np

from pods.types import Grade, Grader, Message, Parts, Problem, Task

TERMS = (3, 4, 5)
POOL_SEED = 2504
DIGITS = frozenset("0123456789")
ANSWER = re.compile(r"#(\d)\Z")
SOLUTION = re.compile(r"(?:\d[+-]\d=\d;){1,8}#\d")


def chain(rng: np.random.Generator) -> str:
    """Draw one question of 3 to 5 digits, such as `7+8-4+1?`."""
    digits = rng.integers(0, 10, rng.choice(TERMS))
    signs = rng.choice(["+", "-"], len(digits) - 1)
    tail = "".join(f"{sign}{digit}" for sign, digit in zip(signs, digits[1:], strict=True))
    return f"{digits[0]}{tail}?"


def solve(question: str, slip: float = 0.0, rng: np.random.Generator | None = None) -> str:
    """Write out the solution; with `slip` > 0 each step errs with that probability.

    >>> solve("7+8-4+1?")
    '7+8=5;5-4=1;1+1=2;#2'
    """
    total = int(question[0])
    steps = ""
    for sign, digit in zip(question[1:-1:2], question[2::2], strict=True):
        result = (total + int(sign + digit)) % 10
        if rng is not None and rng.random() < slip:
            result = (result + int(rng.integers(1, 10))) % 10
        steps += f"{total}{sign}{digit}={result};"
        total = result
    return f"{steps}#{total}"


def typed(question: str) -> str:
    """Return a question as the task writes it; people leave out its end, and add spaces.

    >>> typed("7 + 8"), typed("7+8-4?")
    ('7+8?', '7+8-4?')
    """
    return "".join(question.split()).removesuffix("?") + "?"


def grade(completion: str, gold: str) -> Grade:
    """Grade a completion: it has to end in `#` and the right digit; the reward is 0 or 1."""
    answer = ANSWER.search(completion)
    verdict = "none"
    if answer is not None:
        verdict = "right" if answer[1] == gold else "wrong"
    form = SOLUTION.fullmatch(completion) is not None
    return Grade(verdict, form, Parts(float(verdict == "right")))


def graded(problem: Problem, completion: str) -> float:
    """Return the share of a chain's steps that are right, with the answer as the last step.

    A step is right if it is written in its place, takes the digit that the step before ends in (the
    first step: the question's), adds or subtracts the question's next digit and states the result
    modulo ten; the answer, if it is `#` and that digit. What is written beyond the answer counts as
    wrong steps. So a right answer without its steps, or by two slips that cancel, has less than 1.

    >>> problem = Problem("p", ({"role": "user", "content": "7+8-4?"},), "1")
    >>> [graded(problem, text) for text in ("7+8=5;5-4=1;#1", "7+8=2;2-4=8;#8", "#1")]
    [1.0, 0.6666666666666666, 0.0]
    """
    question = problem.question
    steps = list(zip(question[1:-1:2], question[2:-1:2], strict=True))
    parts = completion.split(";")
    right = 0
    last = question[0]
    for part, (sign, digit) in zip(parts, steps, strict=False):
        if last in DIGITS and f"{part};" == solve(f"{last}{sign}{digit}?")[:6]:
            right += 1
        last = part[-1:]

    answers = parts[len(steps) :]
    if last in DIGITS and answers[:1] == [f"#{last}"]:
        right += 1
    return right / max(len(parts), len(steps) + 1)


@cache
def questions(train_size: int, test_size: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Draw the train pool and the test set; the test set depends on its own size alone."""
    rng = np.random.default_rng(POOL_SEED)
    pool: dict[str, None] = {}
    while len(pool) < test_size + train_size:
        pool[chain(rng)] = None
    drawn = tuple(pool)
    return drawn[test_size:], drawn[:test_size]


def load(train_size: int, test_size: int, few_shot: int = 0) -> Task:
    """Create the task; the same sizes give the same problems on every machine.

    A model that was not trained on chains may get `few_shot` solved examples before each question.
    """
    train, test = questions(train_size, test_size)
    rng = np.random.default_rng(POOL_SEED + 1)
    examples: list[Message] = []
    while len(examples) < 2 * few_shot:
        question = chain(rng)
        if question not in train + test:
            examples.append({"role": "user", "content": question})
            examples.append({"role": "assistant", "content": solve(question)})

    def ask(index: int, question: str, split: str) -> Problem:
        messages = (*examples, {"role": "user", "content": question})
        return Problem(f"{split}-{index:04d}", messages, solve(question)[-1])

    grader = Grader(grade)
    return Task(
        train=tuple(ask(i, question, "train") for i, question in enumerate(train)),
        test=tuple(ask(i, question, "test") for i, question in enumerate(test)),
        train_grader=grader,
        test_grader=grader,
    )
