"""The terms of `task.reward`: correctness, format, the task's grades and one's own functions."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from pods.config.checks import reward_terms
from pods.config.schema import TaskConfig
from pods.system.imports import import_function
from pods.types import Grade, Problem

OwnReward = Callable[[Problem, str], float]
"""`function(problem, completion)` returns a finite number."""


def own_reward(
    config: TaskConfig, graded: OwnReward | None = None
) -> Callable[[Grade, Problem, str], Grade] | None:
    """Make the function that replaces the reward of a grade by the terms of `task.reward`.

    Args:
        config: has the terms.
        graded: the term `graded` of this task, if it has one.

    Returns:
        None where `task.reward` is null.

    Raises:
        ValueError: a function cannot be imported. The function that is returned raises it where one
            fails, or returns something else than a finite number.
    """
    terms = reward_terms(config)
    if not terms:
        return None
    names = [term.name.rpartition(":")[2] for term in terms]
    labels = [
        short if names.count(short) == 1 else term.name.replace(":", ".")
        for short, term in zip(names, terms, strict=True)
    ]
    functions: Mapping[str, OwnReward] = {
        term.name: import_function(term.name) for term in terms if ":" in term.name
    } | ({} if graded is None else {"graded": graded})

    def add(grade: Grade, problem: Problem, completion: str) -> Grade:
        parts = {"correct": grade.parts.correct, "format": grade.parts.format + grade.parts.tags}
        values = {
            label: (term.weight or 0.0)
            * (
                _call(term.name, functions[term.name], problem, completion)
                if term.name in functions
                else parts[term.name]
            )
            for label, term in zip(labels, terms, strict=True)
        }
        return replace(grade, terms=values)

    return add


def _call(name: str, function: OwnReward, problem: Problem, completion: str) -> float:
    """Call a user's function, and say which one it was where that fails."""
    try:
        value = float(function(problem, completion))
    except Exception as error:  # the user's function may raise anything
        raise ValueError(
            f"task.reward={name}: failed on problem {problem.id}: {type(error).__name__}: {error}"
        ) from error
    if not math.isfinite(value):
        raise ValueError(
            f"task.reward={name}: must return a finite number, not {value} (problem {problem.id})"
        )
    return value
