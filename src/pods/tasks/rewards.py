"""Grading of completions: the verdict on the answer, the form around it, and the reward.

No grader raises on any text or evaluates it as code. A reward is a sum of parts, which the records
keep apart.
"""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, SupportsFloat

from mathgrade import MathGrader, number, open_r1
from pods.config.schema import Config
from pods.config.task_checks import reward_terms
from pods.config.task_keys import TaskConfig
from pods.system.imports import call_own, import_function
from pods.system.machine import cores
from pods.tasks import answers
from pods.tasks.datasets import chainsum, own
from pods.tasks.datasets.own import Right
from pods.tasks.lenient import lenient
from pods.types import Grade, Grader, Parts, Problem, Rollout, Task

MAX_WORKERS = 8
OVERLONG_PENALTY = 0.5  # of a right answer's 1; DAPO has 1 beside rewards of 1 and -1
MAX_COMPLETIONS = 8192  # whose verdicts are kept: more than a step of the 8-GPU runs has
AROUND = " .!,;:\"'`*“”‘’"  # may stand around an answer that is a text


def number_grader(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Grader:
    """Create the grader for golds that are numbers; `check` is as in `math_grader`.

    `task.grader=latex` needs math-verify; without it this raises ValueError.
    """
    if config.grader == "latex":
        latex = MathGrader(_workers(), check, MAX_COMPLETIONS, open_r1.verdict_or_goal)

        def in_latex(completion: str, gold: str) -> bool:
            return latex.verdict(completion, gold) == "right"

        return Grader(_grade_function(config, _verdict(same), in_latex), latex.prefetch, in_latex)
    authors = partial(lenient, era=config.lenient)
    rewarded = None if config.grader == "exact" else authors
    return Grader(_grade_function(config, _verdict(same), rewarded), lenient=authors)


def own_grader(config: TaskConfig) -> Grader:
    """Create the grader of data of one's own, which may bring `right(answer, gold)`, and chains."""
    if config.answer_format == "chain":
        return Grader(chainsum.grade)
    right = own.made(config)[2] if config.name == "own" else None
    return Grader(_grade_function(config, _verdict(right or same)))


def _verdict(right: Right) -> Callable[[str, str], str]:
    return lambda answer, gold: "right" if right(answer.strip(), gold) else "wrong"


def same(answer: str, gold: str) -> bool:
    """Compare an answer with a gold, as numbers if the gold is one.

    Else they are texts, without case, the amount of white space, and quotes and full stops around.

    >>> same("$1,200.00", "1200"), same(" The  Nile. ", '"the nile"'), same("five", "5")
    (True, True, False)
    """
    if (value := number(gold)) is not None:
        return number(answer) == value
    texts = (unicodedata.normalize("NFKC", " ".join(text.split())) for text in (answer, gold))
    return len({text.strip(AROUND).casefold() for text in texts}) == 1


def math_grader(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Grader:
    """Create the grader for golds in LaTeX; processes start with the first answer that needs one.

    It calls `check` repeatedly while it waits for a process; `check` may raise.
    """
    grader = MathGrader(_workers(), check)

    def prefetch(completion: str, gold: str) -> None:
        if (answer := answers.closed_answer(completion, config.answer_format)) is not None:
            grader.prefetch(answer, gold)

    return Grader(_grade_function(config, grader.verdict), prefetch)


def _workers() -> int:
    return min(MAX_WORKERS, max(1, cores() - 1))


def grade_rollout(config: Config, task: Task, problem: Problem, rollout: Rollout) -> Grade:
    """Grade a rollout as training does: its verdict and form, its length, and one's own rewards."""
    grade = task.train_grader.grade(rollout.text, problem.gold)
    limit, tokens = config.sampling.max_completion_tokens, len(rollout.completion_ids)
    grade = punish_overlong(config.task, grade, tokens, limit)
    return grade if task.own_reward is None else task.own_reward(grade, problem, rollout.text)


def punish_overlong(config: TaskConfig, grade: Grade, length: int, limit: int) -> Grade:
    """Return a grade whose reward has lost what a completion of `length` tokens loses.

    DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13), in verl's reward manager (`dapo.py`
    at 03150d4) times a half: nothing up to limit - buffer tokens, then linearly more up to
    `OVERLONG_PENALTY` at the limit, where buffer = `task.overlong_tokens`.
    """
    if (buffer := config.overlong_tokens) is None:
        return grade
    overlong = -OVERLONG_PENALTY * max(0, length - (limit - buffer)) / buffer
    return replace(grade, parts=grade.parts._replace(overlong=overlong))


def reward_parts(config: TaskConfig, completion: str, right: bool) -> Parts:
    """Return the parts of the reward: 1 if right, and what `task.format_reward` adds for the form.

    Source: YixuanEvenXu/pods, utils/data.py: `when_wrong` at 3fc107e, the release that holds their
    GSM8K results; `additive` at 187f43b, of their Llama results; `none` of their MATH results;
    `open_r1`: open-r1's rewards.py at 3fc107e, of their 8-GPU runs, three parts of weight 1.
    """
    kind, form = config.format_reward, config.answer_format
    if kind == "open_r1":
        tags = answers.mark_score(completion, answers.STRICT_MARKS)
        return Parts(float(right), float(answers.strict_form(completion)), tags)
    if kind == "additive" or (kind == "when_wrong" and not right):
        tags = answers.mark_score(completion, answers.MARKS[form])
        return Parts(float(right), 0.1 * answers.form_score(completion, form), 0.1 * tags)
    return Parts(float(right))


def _grade_function(
    config: TaskConfig, verdict: Callable[[str, str], str], rewarded: Right | None = None
) -> Callable[[str, str], Grade]:
    """Make `grade(completion, gold)` of `verdict(answer, gold)`, which sees the closed answer only.

    If given, `rewarded(completion, gold)` decides the reward; the records keep the verdict.
    """
    form = config.answer_format

    def grade(completion: str, gold: str) -> Grade:
        answer = answers.closed_answer(completion, form)
        result = "none" if answer is None else verdict(answer, gold)
        right = result == "right" if rewarded is None else rewarded(completion, gold)
        formatted = answers.well_formed(completion, form)
        return Grade(result, formatted, reward_parts(config, completion, right))

    return grade


def own_reward(config: TaskConfig) -> Callable[[Grade, Problem, str], Grade] | None:
    """Make the function that replaces the reward of a grade by the terms of `task.reward`, if any.

    It raises ValueError where a function of one's own fails or returns no finite number.
    """
    if not (terms := reward_terms(config)):
        return None
    functions = {name: import_function(name) for name, _ in terms if ":" in name}
    if "graded" in dict(terms):
        functions["graded"] = chainsum.graded
    short = [name.rpartition(":")[2] for name, _ in terms]
    labels = [
        last if short.count(last) == 1 else name.replace(":", ".")
        for last, (name, _) in zip(short, terms, strict=True)
    ]

    def add(grade: Grade, problem: Problem, completion: str) -> Grade:
        values = {"correct": grade.parts.correct, "format": grade.parts.format + grade.parts.tags}
        for name, function in functions.items():
            key = f"task.reward={name}: problem {problem.id}"
            values[name] = call_own(key, function, (problem, completion), _finite)
        weighted = [weight * values[name] for name, weight in terms]
        return replace(grade, terms=dict(zip(labels, weighted, strict=True)))

    return add


def _finite(value: Any) -> float:
    if not (isinstance(value, SupportsFloat) and math.isfinite(value)):
        raise ValueError(f"must return a finite number, not {value}")
    return float(value)
