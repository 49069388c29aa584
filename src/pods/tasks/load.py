"""Loading of a task: its train pool, its test set and their graders.

A run may be evaluated on the test set of another task. Its questions are then worded like those
that the run trains on, and graded by the rules of that set.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pods.config.checks import GENERATED, OWN
from pods.config.schema import Config, TaskConfig
from pods.tasks.datasets import (
    aime24,
    amc23,
    chainsum,
    countdown,
    gsm8k,
    hendrycks_math,
    minerva,
    olympiad,
    own,
)
from pods.tasks.datasets.splits import Row, Split, check_splits, read_set, read_splits
from pods.tasks.own_rewards import own_reward
from pods.tasks.prompts import Wording, make_problems, opening
from pods.tasks.rewards import math_grader, number_grader, own_grader
from pods.types import Grader, Message, Problem, Task

MADE = {"chainsum": chainsum, "countdown": countdown}  # tasks that are generated
TRAIN_SETS = {
    "gsm8k": (gsm8k.TRAIN, gsm8k.WORDING),
    "math": (hendrycks_math.TRAIN, hendrycks_math.WORDING),
}
TEST_SETS = {
    "gsm8k": gsm8k.TEST,
    "math500": hendrycks_math.TEST,
    "amc23": amc23.TEST,
    "aime24": aime24.TEST,
    "minerva": minerva.TEST,
    "olympiad": olympiad.TEST,
}


def load(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Task:
    """Load the task that the config names, with the test set that it is evaluated on.

    Its graders call `check` repeatedly while they wait for a worker process; it may raise.

    Raises:
        ValueError: the data cannot be read, or are malformed where that is an error.
    """
    if config.name in GENERATED:
        assert config.train_size is not None and config.test_size is not None
        made = MADE[config.name]
        task: Task = made.load(config.train_size, config.test_size, config.few_shot)
        return replace(task, own_reward=own_reward(config, made.graded))
    reward = own_reward(config)
    train, test = read_rows(config)
    check_splits(config, train, test)
    problems = make_problems(config, wording(config), train, test)
    dropped = train.malformed + test.malformed
    return Task(config.label(), *problems, *_graders(config, check), dropped, reward)


def check_data(configs: Iterable[TaskConfig]) -> None:
    """Read the data that are in files or come from a user's function, so that bad ones end here.

    This is before any run has a folder. A hub's data are not asked for.

    Raises:
        ValueError: the data of a config cannot be used.
    """
    for config in {str(config): config for config in configs}.values():
        if config.name == "own" or all(config.files().values()):
            train, test = read_rows(config)
            check_splits(config, train, test, say=lambda _: None)
            make_problems(config, wording(config), train, test)


def read_rows(config: TaskConfig) -> tuple[Split, Split]:
    """Read the train and the test split of a task that has data, with their malformed rows.

    Raises:
        ValueError: the data cannot be read.
    """
    if config.name in OWN:
        return own.read(config)
    return read_splits(config, TRAIN_SETS[config.name][0], TEST_SETS[config.evaluated_on()])


def wording(config: TaskConfig) -> Wording:
    """Return the words in which a task that has data asks for an answer."""
    return own.WORDING if config.name in OWN else TRAIN_SETS[config.name][1]


def load_further(
    config: Config, task: Task, check: Callable[[], None] = lambda: None
) -> dict[str, Task]:
    """Load the further test sets that the config names: for each the task with that test set.

    Raises:
        ValueError: the data cannot be read, or have no usable row.
    """
    evaluation, made = config.evaluation, dict[str, Task]()
    trained = [problem.messages[-1]["content"] for problem in task.train]
    head = task.test[0].messages[:-1]  # the wording of the task: the same for all its problems
    own = {config.task.name: task.train_grader, config.task.evaluated_on(): task.test_grader}
    maths = next((of for name, of in own.items() if name not in ("gsm8k", *GENERATED, *OWN)), None)
    for name in evaluation.sets:
        key = f"evaluation.sets_path={evaluation.sets_path or 'null'}"
        split = read_set(evaluation.set_file(name), TEST_SETS[name], key, trained)
        problems = tuple(
            Problem(
                f"{name}-{row.index:05d}",
                (*head, {"role": "user", "content": row.question}),
                row.gold,
            )
            for row in split.rows
        )
        if name == "gsm8k":
            grader = number_grader(config.task, check)
        else:
            grader = maths = maths or math_grader(config.task, check)  # they share the workers
        made[name] = replace(task, test=problems, test_grader=grader, dropped=split.malformed)
    return made


def load_questions(config: TaskConfig, file: Path) -> Task:
    """Load a file of questions and answers, which are asked and graded as those of the task.

    Rows are read as those of `task=jsonl`; malformed ones are left out and printed.

    Raises:
        ValueError: it cannot be read, or has no usable row.
    """
    split = own.read_questions(file, config)
    generated = config.name in GENERATED
    head = load_opening(config)

    def problem(row: Row) -> Problem:
        asked = chainsum.typed(row.question) if generated else row.question
        messages = (*head, {"role": "user", "content": asked})
        return Problem(f"{file.stem}-{row.index:05d}", messages, row.gold)

    problems = tuple(problem(row) for row in split.rows)
    grader = training_grader(config) if config.name == "countdown" else own_grader(config)
    return Task(file.stem, (), problems, grader, grader)


def _graders(config: TaskConfig, check: Callable[[], None]) -> tuple[Grader, Grader]:
    """Create the graders of train pool and test set; both share the workers that grade MATH."""
    if config.name in OWN:
        right = own.made(config)[2] if config.name == "own" else None
        grader = own_grader(config, right)
        return grader, grader
    numbers = number_grader(config, check)
    names = [str(config.name), config.evaluated_on()]
    if names == ["gsm8k", "gsm8k"]:
        return numbers, numbers
    maths = math_grader(config, check)
    train, test = (numbers if name == "gsm8k" else maths for name in names)
    return train, test


def load_opening(config: TaskConfig) -> tuple[Message, ...]:
    """Return the messages before each question; reads no data unless they hold solved examples.

    Raises:
        ValueError: there are to be examples, and the data cannot be read.
    """
    if config.name not in GENERATED and not config.few_shot:
        return opening(config, wording(config), ())
    try:
        return load(config).train[0].messages[:-1]
    except ValueError as error:
        raise ValueError(f"task.few_shot={config.few_shot}: needs the data: {error}") from error


def training_grader(config: TaskConfig) -> Grader:
    """Return the grader of the train pool, without reading data.

    Raises:
        ValueError: math-verify is not installed, and the task needs it.
    """
    if config.name in GENERATED:
        return Grader(MADE[config.name].grade)
    return _graders(replace(config, test_set="own"), lambda: None)[0]


def data_record(problems: Sequence[Problem], too_long: Sequence[str]) -> dict[str, Any]:
    """Describe the data that a run uses of one split, for its data.json.

    The hash is of ids, messages and golds in order; `too_long` has the ids of dropped problems.
    """
    digest = hashlib.sha256()
    for problem in problems:
        messages = [[message["role"], message["content"]] for message in problem.messages]
        digest.update(json.dumps([problem.id, messages, problem.gold]).encode() + b"\n")
    return {"problems": len(problems), "sha256": digest.hexdigest(), "too_long": list(too_long)}
