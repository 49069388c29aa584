"""Word problems in English of one or two steps, a task of one's own for small language models.

Problem i of a set is a function of the set, i, the steps and the largest number: someone has some
things, and each step adds, takes away or multiplies. No question of the test set is in the train
pool, and none of either in the corpus of a start policy, small problems of one step and the number
that answers them:

    python -m experiments.llm.task FOLDER SEED
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np

TRAIN_SIZE, TEST_SIZE, CORPUS_SIZE = 1024, 256, 640
TRAIN, TEST, CORPUS = range(3)  # sets; from CORPUS, and the seed, start policies are made
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ivy", "Jack")
THINGS = ("apples", "books", "cards", "coins", "eggs", "flowers", "marbles", "pens", "shells")
MORE = ("{name} buys {k} more.", "{name} finds {k} more.", "A friend gives {name} {k} more.")
LESS = ("{name} gives away {k}.", "{name} loses {k}.", "{name} sells {k}.")
TIMES = {2: "Then that number doubles.", 3: "Then that number triples."}
LARGEST = 99
UP_TO, SMALL = 20, 9  # the largest number in a problem, and in a small one
SYSTEM = Path(__file__).parent / "system.txt"  # asks for the number alone
Problem = tuple[str, str]  # a question and its worked solution


def problem(rng: np.random.Generator, steps: int, up_to: int) -> Problem:
    """Draw a problem of so many steps, no number of its question above `up_to`, and solve it."""
    name, things = NAMES[rng.integers(len(NAMES))], THINGS[rng.integers(len(THINGS))]
    value = int(rng.integers(2, up_to + 1))
    sentences, lines = [f"{name} has {value} {things}."], list[str]()
    for _ in range(steps):
        sign = "+-*"[rng.integers(3)]
        if (sign == "-" and value < 3) or (sign == "*" and value * 3 > LARGEST):
            sign = "+" if value < 3 else "-"
        if sign == "*":
            k = int(rng.integers(2, 4))
            sentences.append(TIMES[k])
        else:
            k = int(rng.integers(2, up_to + 1 if sign == "+" else min(value, up_to + 1)))
            wording = (MORE if sign == "+" else LESS)[rng.integers(3)]
            sentences.append(wording.format(name=name, k=k))
        result = {"+": value + k, "-": value - k, "*": value * k}[sign]
        lines.append(f"{value} {sign} {k} = {result}")
        value = result
    sentences.append(f"How many {things} does {name} have now?")
    return " ".join(sentences), "\n".join([*lines, f"#### {value}"])


def draw(kind: int, steps: Sequence[int], up_to: int) -> Iterator[Problem]:
    """Yield the problems of a set, number after number, their steps in turn, without an end."""
    for number in count():
        rng = np.random.default_rng([kind, number])
        yield problem(rng, steps[number % len(steps)], up_to)


def problems(steps: Sequence[int], up_to: int) -> tuple[list[Problem], list[Problem]]:
    """Return train pool and test set, each question once."""
    train, test = dict[str, str](), dict[str, str]()
    for kind, size, drawn in ((TEST, TEST_SIZE, test), (TRAIN, TRAIN_SIZE, train)):
        for question, solution in draw(kind, steps, up_to):
            if question not in test:
                drawn.setdefault(question, solution)
            if len(drawn) == size:
                break
    return list(train.items()), list(test.items())


def one_two() -> tuple[list[Problem], list[Problem]]:
    """Return problems of one and two steps, which are answered by a worked solution."""
    return problems((1, 2), UP_TO)


def number(solution: str) -> str:
    """Return the answer that a worked solution ends in.

    >>> number("3 + 4 = 7\\n#### 7")
    '7'
    """
    return solution.rpartition("#### ")[2]


def short() -> tuple[list[Problem], list[Problem]]:
    """Return small problems of one step, answered by the number alone: three tokens."""
    train, test = problems((1,), SMALL)
    return (
        [(question, number(solution)) for question, solution in train],
        [(question, number(solution)) for question, solution in test],
    )


def corpus(seed: int) -> Iterator[dict[str, object]]:
    """Yield small problems of one step that are in neither set, as TRL reads conversations."""
    train, test = short()
    known = {question for question, _ in [*train, *test]}
    system = {"role": "system", "content": SYSTEM.read_text()}
    for question, solution in draw(CORPUS + seed, (1,), SMALL):
        if question not in known:
            prompt = [system, {"role": "user", "content": question}]
            answer = [{"role": "assistant", "content": number(solution)}]
            yield {"prompt": prompt, "completion": answer}


def main(folder: Path, seed: int) -> None:
    """Write the corpus of a start policy."""
    rows = islice(corpus(seed), CORPUS_SIZE)
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
