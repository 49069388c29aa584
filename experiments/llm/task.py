"""Word problems in English of one to five steps, a task of one's own for small language models.

Problem i of a set is a function of the set and i alone: someone has some things, and each step
adds, takes away or multiplies. The gold is a worked solution, a line a step, that ends in `####`.
No question of the test set is in the train pool, and none of either in the corpus that this writes:

    python -m experiments.llm.task FOLDER SEED          worked problems
    python -m experiments.llm.task FOLDER SEED short    problems of one step, and their number alone
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np

STEPS, SHORT = (1, 2, 3, 4, 5), (1, 2, 3)
TRAIN_SIZE, TEST_SIZE, CORPUS_SIZE = 1024, 256, 640
TRAIN, TEST, CORPUS = range(3)  # sets; from CORPUS, and the seed, start policies are made
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ivy", "Jack")
THINGS = ("apples", "books", "cards", "coins", "eggs", "flowers", "marbles", "pens", "shells")
MORE = ("{name} buys {k} more.", "{name} finds {k} more.", "A friend gives {name} {k} more.")
LESS = ("{name} gives away {k}.", "{name} loses {k}.", "{name} sells {k}.")
TIMES = {2: "Then that number doubles.", 3: "Then that number triples."}
LARGEST = 99
SYSTEM = Path(__file__).parent / "system.txt"  # before problems that a number alone answers
Problem = tuple[str, str]  # a question and its worked solution
Right = Callable[[str, str], bool]


def problem(rng: np.random.Generator, steps: int) -> Problem:
    """Draw a problem of so many steps: its question and its worked solution."""
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
    for number in count():
        yield problem(np.random.default_rng([kind, number]), steps[number % len(steps)])


def right(answer: str, gold: str) -> bool:
    """Return whether the answer's last line is `####` and the gold.

    >>> right("3 + 4 = 7\\n#### 7", "7"), right("3 + 4 = 7", "7"), right("#### 17", "7")
    (True, False, False)
    """
    return answer.rpartition("\n")[2] == f"#### {gold}"


def problems(steps: Sequence[int] = STEPS) -> tuple[list[Problem], list[Problem], Right]:
    """Return what `task.make` asks for: train pool, test set, each question once, and grader."""
    train, test = dict[str, str](), dict[str, str]()
    for kind, size, drawn in ((TEST, TEST_SIZE, test), (TRAIN, TRAIN_SIZE, train)):
        for question, solution in draw(kind, steps):
            if question not in test:
                drawn.setdefault(question, solution)
            if len(drawn) == size:
                break
    return list(train.items()), list(test.items()), right


def one_two() -> tuple[list[Problem], list[Problem], Right]:
    """Return problems of one and two steps, which a start policy solves now and then."""
    return problems((1, 2))


def two_three() -> tuple[list[Problem], list[Problem]]:
    """Return problems of two and three steps, for a model that is shown the form."""
    return problems((2, 3))[:2]


def number(solution: str) -> str:
    """Return the answer that a worked solution ends in.

    >>> number("3 + 4 = 7\\n#### 7")
    '7'
    """
    return solution.rpartition("#### ")[2]


def short() -> tuple[list[Problem], list[Problem]]:
    """Return problems of one step that are answered by the number alone: three tokens."""
    train, test, _ = problems((1,))
    return (
        [(question, number(solution)) for question, solution in train],
        [(question, number(solution)) for question, solution in test],
    )


def in_neither_set(seed: int, steps: Sequence[int]) -> Iterator[Problem]:
    """Yield problems of so many steps that are in no train pool and test set of such problems."""
    train, test, _ = problems(steps)
    known = {question for question, _ in [*train, *test]}
    for question, solution in draw(CORPUS + seed, steps):
        if question not in known:
            yield question, solution


def worked_rows(seed: int) -> Iterator[dict[str, object]]:
    """Yield problems of one to three steps with their worked solutions."""
    for question, solution in in_neither_set(seed, SHORT):
        yield conversation([{"role": "user", "content": question}], solution)


def short_rows(seed: int) -> Iterator[dict[str, object]]:
    """Yield problems of one step with their numbers, after the system message."""
    system = {"role": "system", "content": SYSTEM.read_text()}
    for question, solution in in_neither_set(seed, (1,)):
        yield conversation([system, {"role": "user", "content": question}], number(solution))


def conversation(prompt: list[dict[str, str]], answer: str) -> dict[str, object]:
    """Return a row as TRL reads conversations."""
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": answer}]}


def main(folder: Path, seed: int, form: str = "worked") -> None:
    """Write the corpus of a start policy: problems and answers in the form."""
    made = {"worked": worked_rows, "short": short_rows}[form]
    rows = islice(made(seed), CORPUS_SIZE)
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
