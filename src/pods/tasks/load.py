"""From the config's task to a `Task`, and what of its data a run uses.

A run may be evaluated on another set than its task's own: its questions are put as those that are
trained on, and graded by its own rules.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from pods.config import TaskConfig
from pods.records import Grader, Problem, Task
from pods.tasks import amc23, chainsum, gsm8k, hendrycks_math
from pods.tasks.grading import lenient_grader, math_grader, number_grader
from pods.tasks.prompts import ask
from pods.tasks.rows import left_out, read

POOLS = {
    "gsm8k": (gsm8k.TRAIN, gsm8k.WORDING),
    "math": (hendrycks_math.TRAIN, hendrycks_math.WORDING),
}
TESTS = {"gsm8k": gsm8k.TEST, "math500": hendrycks_math.TEST, "amc23": amc23.TEST}


def load(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Task:
    """Load the task that the config names, and the set that it is evaluated on.

    The first `few_shot` train rows become examples and leave the train pool.

    Args:
        config: of the task.
        check: called while a grade is waited for; may raise.

    Raises:
        ValueError: its data cannot be found, or are malformed and not to be dropped.
    """
    if config.name == "chainsum":
        assert config.train_size is not None and config.test_size is not None
        return chainsum.load(config.train_size, config.test_size, config.few_shot)
    source, wording = POOLS[config.name]
    splits = read(config, source, TESTS[config.evaluated_on()])
    train, test = ask(config, wording, splits)
    grader, examiner = _graders(config, check)
    return Task(config.name, train, test, grader.grade, grader.ahead, examiner, left_out(splits))


def _graders(config: TaskConfig, check: Callable[[], None]) -> tuple[Grader, Grader]:
    """Of the train pool and of the test set; answers of MATH have one set of workers for both."""
    numbers = Grader(number_grader(config), lenient=lenient_grader(config))
    names = (config.name, config.evaluated_on())
    if names == ("gsm8k", "gsm8k"):
        return numbers, numbers
    maths = Grader(*math_grader(config, check))
    train, test = (numbers if name == "gsm8k" else maths for name in names)
    return train, test


def used(problems: Sequence[Problem], too_long: Sequence[str]) -> dict[str, Any]:
    """What a run uses of one split, as its data.json has it.

    Args:
        problems: that it trains on, or is asked.
        too_long: ids of those that it leaves out, since their prompts are too long.

    Returns:
        `problems`, how many; `sha256` of their ids, messages and golds in order; `too_long`.
    """
    found = hashlib.sha256()
    for problem in problems:
        messages = [[message["role"], message["content"]] for message in problem.messages]
        found.update(json.dumps([problem.id, messages, problem.gold]).encode() + b"\n")
    return {
        "problems": len(problems),
        "sha256": found.hexdigest(),
        "too_long": list(too_long),
    }
