"""Word problems in English of one to five steps, a task of one's own for small language models.

Problem i of a set is a function of the set and i alone: someone has some things, and each step
adds, takes away or multiplies. The gold is a worked solution, a line a step, that ends in `####`.
No question of the test set is in a train set of any size.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

STEPS = (1, 2, 3, 4, 5)
TRAIN_SIZE, TEST_SIZE = 1024, 256
TRAIN, TEST, CORPUS = range(3)  # CORPUS is the recipe's: a language model learns the form from it
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ivy", "Jack")
THINGS = ("apples", "books", "cards", "coins", "eggs", "flowers", "marbles", "pens", "shells")
MORE = ("{name} buys {k} more.", "{name} finds {k} more.", "A friend gives {name} {k} more.")
LESS = ("{name} gives away {k}.", "{name} loses {k}.", "{name} sells {k}.")
TIMES = {2: "Then that number doubles.", 3: "Then that number triples."}
LARGEST = 99
Problem = tuple[str, str]
"""A question and its worked solution."""


def problem(rng: np.random.Generator, steps: int) -> Problem:
    """Draw a problem of so many steps: its question and its worked solution.

    >>> problem(np.random.default_rng(0), 1)[1]
    '11 + 7 = 18\\n#### 18'
    """
    name, things = NAMES[rng.integers(len(NAMES))], THINGS[rng.integers(len(THINGS))]
    value = int(rng.integers(2, 21))
    sentences, lines = [f"{name} has {value} {things}."], list[str]()
    for _ in range(steps):
        sign = "+-*"[rng.integers(3)]
        if (sign == "-" and value < 3) or (sign == "*" and value * 3 > LARGEST):
            sign = "+" if value < 3 else "-"
        if sign == "*":
            k = int(rng.integers(2, 4))
            sentences.append(TIMES[k])
        else:
            k = int(rng.integers(2, 21 if sign == "+" else min(value, 21)))
            wording = (MORE if sign == "+" else LESS)[rng.integers(3)]
            sentences.append(wording.format(name=name, k=k))
        result = {"+": value + k, "-": value - k, "*": value * k}[sign]
        lines.append(f"{value} {sign} {k} = {result}")
        value = result
    sentences.append(f"How many {things} does {name} have now?")
    return " ".join(sentences), "\n".join([*lines, f"#### {value}"])


def draw(kind: int, steps: Sequence[int] = STEPS) -> Iterator[Problem]:
    """Yield the problems of a set, number after number, their steps in turn, without an end."""
    number = 0
    while True:
        rng = np.random.default_rng([kind, number])
        yield problem(rng, steps[number % len(steps)])
        number += 1


def right(answer: str, gold: str) -> bool:
    """Return whether the answer's last line is `####` and the gold.

    >>> right("3 + 4 = 7\\n#### 7", "7"), right("3 + 4 = 7", "7"), right("#### 17", "7")
    (True, False, False)
    """
    return answer.rpartition("\n")[2] == f"#### {gold}"


def sets(steps: Sequence[int] = STEPS) -> tuple[list[Problem], list[Problem]]:
    """Return train pool and test set, in which each question is there once."""
    train, test = dict[str, str](), dict[str, str]()
    for kind, size, drawn in ((TEST, TEST_SIZE, test), (TRAIN, TRAIN_SIZE, train)):
        for question, solution in draw(kind, steps):
            if question not in test:
                drawn.setdefault(question, solution)
            if len(drawn) == size:
                break
    return list(train.items()), list(test.items())


def problems() -> tuple[list[Problem], list[Problem], Callable[[str, str], bool]]:
    """Return what `task.make` asks for: problems of one to five steps, and the grader."""
    return *sets(), right


def short() -> tuple[list[Problem], list[Problem], Callable[[str, str], bool]]:
    """Return problems of one to three steps, in which few prompts are hopeless."""
    return *sets((1, 2, 3)), right


def two_three() -> tuple[list[Problem], list[Problem]]:
    """Return problems of two and three steps, for a model that is shown the form."""
    return sets((2, 3))
