"""The user's reward, `task.reward`: a weighted sum of terms, for all rollouts of a batch at once.

A function of TRL's form, `f(prompts, completions, **columns) -> list[float | None]`, is called once
for the batch. As in TRL, None of one function leaves its term out of the sum, and a rollout to
which every term gives None has no reward. So has one for which a function fails, if
`task.reward_errors=exclude`. What has no reward is no 0: it takes no part in a step's training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Any, SupportsFloat

from pods.config.task_checks import reward_terms, trl_function
from pods.config.task_keys import TaskConfig
from pods.system.imports import call_own, import_function
from pods.tasks.datasets import chainsum, gym
from pods.tasks.datasets.splits import Fields
from pods.types import Grade, Graded, OwnReward

NO_FIELDS: Mapping[str, Fields] = MappingProxyType({})
NAMED = ("prompt", "prompts", "completion", "completions", "completion_ids")
"""Columns of the data that TRL does not give to a function, or that hide its other arguments."""
SHOWN = 60  # characters of a completion in a message
Value = float | None  # None: a function has none; NaN: it failed
Term = Callable[[Sequence[Graded]], list[Value]]


def own_reward(config: TaskConfig, fields: Mapping[str, Fields] = NO_FIELDS) -> OwnReward | None:
    """Make the function that gives a batch of grades the terms of `task.reward`, if that is set.

    `fields` is what the data have of each problem, by its id. The function raises ValueError or
    OSError if one of the user's fails, unless `task.reward_errors=exclude`.
    """
    terms = reward_terms(config)
    if not terms:
        return None
    functions = [_term(config, name, fields) for name, _ in terms]
    labels = _labels([name for name, _ in terms])
    weights = [weight for _, weight in terms]

    def add(batch: Sequence[Graded]) -> list[Grade]:
        columns = [function(batch) for function in functions]
        grades = []
        for graded, values in zip(batch, zip(*columns, strict=True), strict=True):
            known = {}
            for label, weight, value in zip(labels, weights, values, strict=True):
                if value is not None and not math.isnan(value):
                    known[label] = weight * value
            failed = any(value is not None and math.isnan(value) for value in values)
            scored = bool(known) and not failed
            grades.append(replace(graded.grade, terms=known, scored=scored))
        return grades

    return add


def _term(config: TaskConfig, name: str, fields: Mapping[str, Fields]) -> Term:
    """Make the function that gives the values of one term to a batch."""
    if name == "correct":
        return lambda batch: [graded.grade.parts.correct for graded in batch]
    if name == "format":
        return lambda batch: [
            graded.grade.parts.format + graded.grade.parts.tags for graded in batch
        ]

    failures = _Failures(f"task.reward={name}", config.reward_errors == "exclude")
    trl = trl_function(name)
    if trl is not None:
        return _trl_term(config, import_function(trl), fields, failures)
    if name == "graded":
        is_gym = config.name == "gym"
        function = gym.graded(config, fields) if is_gym else chainsum.graded
    else:
        function = import_function(name)
    return lambda batch: [
        failures.call(function, graded, (graded.problem, graded.rollout.text), _finite)
        for graded in batch
    ]


class _Failures:
    """What becomes of the failures of one function: an error, or a NaN of which the first is told.

    `excludes`: they are no errors.
    """

    def __init__(self, key: str, excludes: bool) -> None:
        self.key = key
        self.excludes = excludes
        self.told = False

    def call(
        self,
        function: Callable[..., Any],
        graded: Graded,
        arguments: tuple[Any, ...],
        read: Callable[[Any], Value],
    ) -> Value:
        """Return what `read` makes of a function's result for one completion; NaN if it fails."""
        shown = graded.rollout.text[:SHOWN]
        where = f"{self.key}: problem {graded.problem.id}, completion {shown!r}"
        try:
            return call_own(where, function, arguments, read)
        except (ValueError, OSError) as error:
            if not self.excludes:
                raise
            if not self.told:
                print(f"left out, and so is each such rollout from now on: {error}", flush=True)
            self.told = True
            return math.nan


def _trl_term(
    config: TaskConfig,
    function: Callable[..., Any],
    fields: Mapping[str, Fields],
    failures: _Failures,
) -> Term:
    """Make a term of a function of TRL's form, which is called once for the batch.

    If that fails, each completion is tried alone, to find those that are the cause.
    """

    @wraps(function)
    def ask(batch: Sequence[Graded]) -> list[Value]:
        returned = list(function(**trl_arguments(config, batch, fields)))
        if len(returned) != len(batch):
            raise ValueError(f"must return {len(batch)} rewards, not {len(returned)}")
        return [None if value is None else _finite(value) for value in returned]

    def values(batch: Sequence[Graded]) -> list[Value]:
        try:
            return call_own(failures.key, ask, (batch,), list)
        except (ValueError, OSError):
            alone = [
                failures.call(ask, graded, ([graded],), lambda values: values[0])
                for graded in batch
            ]
            if not any(value is not None and math.isnan(value) for value in alone):
                raise  # it fails on the batch
            return alone

    return values


def trl_arguments(
    config: TaskConfig, batch: Sequence[Graded], fields: Mapping[str, Fields] = NO_FIELDS
) -> dict[str, list[Any]]:
    """Return what TRL gives to a reward function, a list per argument, each with a batch's values.

    The columns of the data follow prompts, completions and completion_ids; a problem's question and
    gold are columns, too. TRL's trainer_state, log_extra and log_metric are not among them.
    """
    prompts: list[Any] = [graded.problem.question for graded in batch]
    completions: list[Any] = [graded.rollout.text for graded in batch]
    if config.trl_messages:
        prompts = [[dict(message) for message in graded.problem.messages] for graded in batch]
        completions = [[{"role": "assistant", "content": text}] for text in completions]

    rows = []
    for graded in batch:
        problem = graded.problem
        own = {"question": problem.question, "gold": problem.gold}
        rows.append(own | dict(fields.get(problem.id, {})))
    names = dict.fromkeys(name for row in rows for name in row if name not in NAMED)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {
        "prompts": prompts,
        "completions": completions,
        "completion_ids": [list(graded.rollout.completion_ids) for graded in batch],
        **columns,
    }


def _labels(names: Sequence[str]) -> list[str]:
    """Return the functions' names, with their modules if two functions have one name.

    >>> _labels(["correct", "a:short", "b:short", "a:long"])
    ['correct', 'a.short', 'b.short', 'long']
    """
    short = [name.rpartition(":")[2] for name in names]
    labels = []
    for name, last in zip(names, short, strict=True):
        labels.append(last if short.count(last) == 1 else name.replace(":", "."))
    return labels


def _finite(value: Any) -> float:
    if not (isinstance(value, SupportsFloat) and math.isfinite(value)):
        raise ValueError(f"must return a finite number, not {value!r}")
    return float(value)
