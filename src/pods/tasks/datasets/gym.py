"""The procedural tasks of reasoning-gym: its questions and golds, and its own scores of answers.

Test set and train pool come from different seeds of the library, and share no question. They are
the same for every seed of a run.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

from pods.config.parse import ConfigError
from pods.config.task_checks import TEST_SIZE, reward_terms
from pods.config.task_keys import TaskConfig
from pods.system.imports import call_own
from pods.tasks.answers import closed_answer
from pods.tasks.datasets.own import WORDING
from pods.tasks.datasets.splits import (
    Fields,
    ReadRow,
    Row,
    Source,
    Split,
    Splits,
    read_rows,
    text_field,
)
from pods.types import Problem

TEST_SEED = 500_000
TRAIN_SEED = 1_000_000  # the library adds an entry's number to the seed: no test entry comes so far
TRIES = 10  # entries that are generated per question that is wanted: small tasks repeat themselves
TRIED = 32  # entries on which the scorer is tried
NONSENSE = ("foo", "I do not know")


def make(config: TaskConfig) -> Splits:
    """Generate the test set, and a train pool of other questions.

    Raises:
        ConfigError: the library has no such task, or the task refuses its parameters.
    """
    test = _generate(config, TEST_SEED, TEST_SIZE, ())
    if len(test.rows) < TEST_SIZE:  # that is all there is, and the other half is to train on
        test = replace(test, rows=test.rows[: len(test.rows) // 2])
    wanted = (config.train_size or 0) + config.few_shot
    return Splits(_generate(config, TRAIN_SEED, wanted, test.rows), test)


def graded(config: TaskConfig, fields: Mapping[str, Fields]) -> Callable[[Problem, str], float]:
    """Make the function that scores the closed answer of a completion as the library does.

    `fields` has the library's entry of each problem by its id. No answer scores 0.
    """
    score_answer = _dataset(config, TRAIN_SEED, 1).score_answer

    def score(problem: Problem, completion: str) -> float:
        answer = closed_answer(problem.opened + completion, config.answer_format)
        if answer is None:
            return 0.0
        return float(score_answer(answer.strip(), fields[problem.id]))

    return score


def try_scorer(config: TaskConfig, entries: Sequence[Fields]) -> None:
    """Score golds and nonsense, and print a warning if golds earn less than 1 or nonsense anything.

    Nothing is tried if the scorer decides no reward. If it fails on an answer, that is the warning
    with `task.reward_errors=exclude`, and else a ValueError.
    """
    if "graded" not in dict(reward_terms(config)):
        return
    try:
        _try_scorer(config, entries)
    except ValueError as error:
        if config.reward_errors == "fail":
            raise
        print(f"warning: {error}")


def _try_scorer(config: TaskConfig, entries: Sequence[Fields]) -> None:
    tried = entries[:TRIED]
    golds = [(str(entry["answer"]), entry) for entry in tried]
    nonsense = [(text, entry) for entry in tried for text in NONSENSE]

    for_golds = _mean_pay(config, golds)
    if for_golds < 1:
        print(f"warning: {_key(config)}: its scorer pays only {for_golds:.3g} for its own answers")
    for_nonsense = _mean_pay(config, nonsense)
    if for_nonsense > 0:
        what = " and ".join(map(repr, NONSENSE))
        print(f"warning: {_key(config)}: its scorer pays {for_nonsense:.2g} on average for {what}")


def _mean_pay(config: TaskConfig, answers: Sequence[tuple[str, Fields]]) -> float:
    score_answer = _dataset(config, TRAIN_SEED, 1).score_answer
    pays = []
    for answer, entry in answers:
        key = f"{_key(config)}: task.reward=[correct] does without its scorer, which fails"
        why = f"{key} on the answer {answer!r}"
        pays.append(call_own(why, score_answer, (answer, entry), float))
    return sum(pays) / len(pays)


def _key(config: TaskConfig) -> str:
    return f"task.gym={config.gym}"


def _read(fields: Fields) -> ReadRow:
    return ReadRow(text_field(fields, "question"), "", text_field(fields, "answer"))


SOURCE = Source("", "", _read, WORDING)


def _generate(config: TaskConfig, seed: int, wanted: int, tests: Sequence[Row]) -> Split:
    """Generate rows with different questions that are none of the tests: `wanted`, or all."""
    most = TRIES * wanted
    dataset = _dataset(config, seed, most)
    entries: list[Fields] = []
    rows: tuple[Row, ...] = ()
    while len(rows) < wanted and len(entries) < most:
        with redirect_stdout(StringIO()):  # some tasks print dots
            entries += [dataset[len(entries) + i] for i in range(wanted)]
        split = read_rows(entries, SOURCE, _key(config), str(config.gym), tests)
        rows = split.rows
    return replace(split, rows=rows[:wanted], malformed=() if rows else split.malformed)


def _dataset(config: TaskConfig, seed: int, size: int) -> Any:
    """Make the library's data set, of so many entries."""
    with warnings.catch_warnings():  # of the syntax of a package that it imports
        warnings.simplefilter("ignore", SyntaxWarning)
        from reasoning_gym.factory import DATASETS, create_dataset  # takes seconds to import

    if config.gym not in DATASETS:
        names = ", ".join(sorted(DATASETS))
        raise ConfigError("task.gym", config.gym, f"must be a task of reasoning-gym: {names}")

    parameters = config.gym_parameters or {}
    try:
        return create_dataset(config.gym, seed=seed, size=size, **parameters)
    except (AssertionError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ConfigError("task.gym_parameters", parameters, f"must fit the task: {why}") from error
