"""Forecast the evaluations of runs: how many there are, and how many answers each of them has."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from pods.config.schema import Config
from pods.system.text import duration


def count_questions(configs: Sequence[Config]) -> list[int | None]:
    """Return how many test questions an evaluation of each run asks; None if nobody can tell yet.

    The user's data are read, and a function that makes them is called, once for all runs.
    """
    from pods.tasks import load  # not above: `pods doctor` must start fast

    counts: dict[str, int | None] = {}
    questions = []
    for config in configs:
        count = config.evaluation.questions
        if count is None:
            task = str(config.task)
            if task not in counts:
                counts[task] = load.count_questions(config.task)
            count = counts[task]
        questions.append(count)
    return questions


def describe_evaluations(
    configs: Sequence[Config], questions: Sequence[int | None]
) -> Iterator[str]:
    """Say which evaluations these runs make, a line for each kind of runs."""
    kinds = Counter(map(_describe, configs, questions))
    for text, runs in kinds.items():
        yield text if len(kinds) == 1 else f"in {runs} of the runs {text}"


def _describe(config: Config, questions: int | None) -> str:
    repeats = config.evaluation.repeats
    answers = f"{repeats} answers to every test question"
    if questions is not None:
        answers = f"{questions * repeats:,} answers ({questions:,} questions × {repeats})"
    count = count_evaluations(config)
    if count is None:
        before_the_end = ", ".join(["at step 0", *_marks(config)])
        return f"{before_the_end} and at the end of a run, each of {answers}"
    return f"{count} a run, each of {answers}"


def _marks(config: Config) -> Iterator[str]:
    checkpoint = config.checkpoint
    if checkpoint.every_steps is not None:
        yield f"every {checkpoint.every_steps} steps"
    if checkpoint.every_train_seconds is not None:
        yield f"every {duration(checkpoint.every_train_seconds)} of training"


def count_evaluations(config: Config) -> int | None:
    """Return how many evaluations a run makes; None if that depends on the speed of its steps.

    They are at step 0, at the marks of `checkpoint` and at the end of the budget. A step that is
    longer than the time between two marks makes them fewer.
    """
    budget = config.budget
    checkpoint = config.checkpoint
    length: float | None
    between: float | None
    if budget.max_steps is None and checkpoint.every_steps is None:
        length = budget.train_seconds
        between = checkpoint.every_train_seconds
    elif budget.train_seconds is None and checkpoint.every_train_seconds is None:
        length = budget.max_steps
        between = checkpoint.every_steps
    else:
        return None

    if not length:  # the start policy is all that there is
        return 1
    if between is None:
        return 2
    return 1 + math.ceil(round(length / between, 6))  # 2.1 / 0.3 is 7.000000000000001
