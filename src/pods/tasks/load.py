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

import numpy as np

from pods.config.task_checks import GENERATED, ON_THE_HUB, OWN, TEST_SIZE
from pods.config.task_keys import TaskConfig
from pods.tasks.datasets import chainsum, gsm8k, gym, math_sets, own, splits
from pods.tasks.datasets.splits import Fields, Right, Split, Splits, read_split
from pods.tasks.own_rewards import own_reward
from pods.tasks.prompts import ask, make_problems, opening, problem_id
from pods.tasks.rewards import math_grader, number_grader, own_grader
from pods.types import Grade, Graded, Grader, Message, Parts, Problem, Rollout, Task

NO_ROLLOUT = Rollout(
    prompt_ids=(0,),
    completion_ids=(0,),
    logprobs=np.zeros(1, np.float32),
    text="",
    finished=True,
)
"""An empty answer, on which rewards are tried."""
TRAIN_SETS = {
    "gsm8k": gsm8k.TRAIN,
    "math": math_sets.TRAIN,
    **dict.fromkeys(OWN, own.SOURCE),
}
TEST_SETS = {
    "gsm8k": gsm8k.TEST,
    "jsonl": own.SOURCE,
    **math_sets.TEST_SETS,
}


def load(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Task:
    """Load the task that the config names, with the test set that it is evaluated on.

    Its graders call `check` repeatedly while they wait for a worker process; it may raise. Data
    that cannot be read, or are malformed if that is an error, raise ValueError.
    """
    if config.name == "chainsum":
        task = chainsum.load(config.train_size or 0, TEST_SIZE, config.few_shot)
        return replace(task, own_reward=own_reward(config))

    data = read_splits(config)
    splits.check_splits(config, data.train, data.test)
    splits.print_malformed("train", data.train)
    splits.print_malformed("test", data.test)

    train, test = make_problems(config, data.train, data.test)
    train_grader, test_grader = _graders(config, data.right, check)
    return Task(
        train=train,
        test=test,
        train_grader=train_grader,
        test_grader=test_grader,
        dropped=data.train.malformed + data.test.malformed,
        own_reward=own_reward(config, _fields(data.train)),
    )


def _fields(split: Split) -> dict[str, Fields]:
    """Return what the data have of each problem of the train pool, by its id."""
    return {problem_id("train", row): row.fields for row in split.rows}


def check_data(configs: Iterable[TaskConfig]) -> None:
    """Raise ValueError if data in files, or a function of the user's, cannot be used.

    This is before any run has a folder. A hub's data are not asked for, and then the reward is
    tried on an empty answer to a toy problem, otherwise to the first one.
    """
    different = {str(config): config for config in configs}
    for config in different.values():
        problem = Problem("toy", ({"role": "user", "content": "1+1?"},), "2")
        fields: dict[str, Fields] = {}
        if config.name in ("own", "gym") or all(config.files().values()):
            data = read_splits(config)
            splits.check_splits(config, data.train, data.test)
            train, _ = make_problems(config, data.train, data.test)
            problem = train[0]
            fields = _fields(data.train)
        if config.name == "gym":
            gym.try_scorer(config, list(fields.values()))

        reward = own_reward(config, fields)
        if reward is not None:
            reward([Graded(problem, NO_ROLLOUT, Grade("none", False, Parts(0.0)))])


def read_splits(config: TaskConfig) -> Splits:
    """Read the rows of the train pool and of the test set; ValueError: they cannot be read."""
    if config.name == "own":
        return own.make(config)
    if config.name == "gym":
        return gym.make(config)
    if config.hub is not None:
        return _read_hub(config)
    source = TRAIN_SETS[config.name]
    test_source = TEST_SETS[config.evaluated_on()]
    if config.name == "jsonl":
        source = own.source(config)
        test_source = source

    files = config.files()
    path = f"task.path={config.path or 'null'}"
    if config.name == "jsonl" and files["train"] == files["test"]:
        return own.divide(read_split(files["train"], source, path))

    test_key = f"task.test_path={config.test_path or 'null'}"
    if config.test_set == "own" and config.test_path is None:  # beside the train split
        test_key = path
    test = read_split(files["test"], test_source, test_key)
    train = read_split(files["train"], source, path, test.rows)
    return Splits(train, test)


def _read_hub(config: TaskConfig) -> Splits:
    """Read the user's data set on the hub; without a test split, a fifth is the test set."""
    source = own.source(config)
    key = f"task.hub={config.hub}"
    if config.hub_test_split is None:
        return own.divide(read_split(None, source, key))
    test = read_split(None, replace(source, split=config.hub_test_split), key)
    return Splits(read_split(None, source, key, test.rows), test)


def count_questions(config: TaskConfig) -> int | None:
    """Count the questions of the test set without asking the hub; None if nobody can tell yet."""
    if config.name in GENERATED:
        return TEST_SIZE
    files = config.files()
    if config.name != "own" and files["test"] is None:
        return ON_THE_HUB.get(config.evaluated_on())  # None: a data set of the user's
    if config.name != "own" and files["train"] is None:  # which is on the hub
        return None
    try:
        return len(read_splits(config).test.rows)
    except ValueError:
        return None


def load_questions(config: TaskConfig, file: Path) -> Task:
    """Load a file of questions and answers, which are asked and graded as those of the task.

    Rows are read as those of `task=jsonl`; malformed ones are left out and printed. A file that
    cannot be read, or without a usable row, raises ValueError.
    """
    split = read_split(file, own.source(config), f"file={file}")
    splits.print_malformed("test", split)
    splits.check_usable(split)

    right = own.make(config).right if config.name == "own" else None
    grader = own_grader(config, right)
    problems = ask(file.stem, load_opening(config), split.rows)
    return Task(train=(), test=problems, train_grader=grader, test_grader=grader)


def _graders(
    config: TaskConfig, right: Right | None, check: Callable[[], None]
) -> tuple[Grader, Grader]:
    """Create the graders of train pool and test set; both share the workers that grade MATH."""
    if config.name in OWN:
        grader = own_grader(config, right)
        return grader, grader

    numbers = number_grader(config, check)
    if config.name == "gsm8k" and config.evaluated_on() == "gsm8k":
        return numbers, numbers
    maths = math_grader(config, check)
    train_grader = numbers if config.name == "gsm8k" else maths
    test_grader = numbers if config.evaluated_on() == "gsm8k" else maths
    return train_grader, test_grader


def load_opening(config: TaskConfig) -> tuple[Message, ...]:
    """Return the messages before each question; reads no data unless they hold solved examples."""
    if config.name != "chainsum" and not config.few_shot:
        return opening(config, TRAIN_SETS[config.name].wording, ())
    try:
        return load(config).train[0].messages[:-1]
    except ValueError as error:
        raise ValueError(f"task.few_shot={config.few_shot}: needs the data: {error}") from error


def data_record(problems: Sequence[Problem], too_long: Sequence[str]) -> dict[str, Any]:
    """Describe the data that a run uses of one split, for its data.json.

    The hash is of ids, messages and golds in order; `too_long` has the ids of dropped problems.
    """
    digest = hashlib.sha256()
    for problem in problems:
        messages = [[message["role"], message["content"]] for message in problem.messages]
        digest.update(json.dumps([problem.id, messages, problem.gold]).encode() + b"\n")
    return {"problems": len(problems), "sha256": digest.hexdigest(), "too_long": list(too_long)}
