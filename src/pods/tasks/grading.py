"""From a completion to its grade: verdict on the answer, form, reward.

No grader raises on any text or evaluates anything. A reward is a sum of parts, and the parts stay
apart in the records.
"""

from collections.abc import Callable

from pods.config import TaskConfig
from pods.machine import cores
from pods.records import Grade, Parts
from pods.tasks.answers import (
    closed_answer,
    form_score,
    strict_form,
    strict_tag_score,
    tag_score,
    well_formed,
)
from pods.tasks.lenient import lenient
from pods.tasks.numbers import number

Grading = Callable[[str, str], Grade]
Lenient = Callable[[str, str], bool]
MOST_WORKERS = 8


def number_grader(config: TaskConfig) -> Grading:
    """Make `grade(completion, gold)` for golds that are numbers."""

    def verdict(answer: str, gold: str) -> str:
        value = number(answer)
        return "right" if value is not None and value == number(gold) else "wrong"

    return _grader(config, verdict, None if config.grader == "exact" else lenient_grader(config))


def math_grader(
    config: TaskConfig, check: Callable[[], None] = lambda: None
) -> tuple[Grading, Callable[[str, str], None]]:
    """Make `grade` and `ahead` for golds in LaTeX; processes start with the first hard answer.

    Args:
        config: of the task.
        check: called while `grade` waits for a process; may raise.

    Raises:
        ValueError: math-verify is not installed.
    """
    from pods.tasks.math_verdict import MathVerdicts

    verdicts = MathVerdicts(config.workers or min(MOST_WORKERS, max(1, cores() - 1)), check)

    def ahead(completion: str, gold: str) -> None:
        answer = closed_answer(completion, config.answer_format)
        if answer is not None:
            verdicts.ahead(answer, gold)

    return _grader(config, verdicts.verdict, None), ahead


def lenient_grader(config: TaskConfig) -> Lenient:
    """Make `lenient(completion, gold)`, of the era that `task.lenient` names."""
    return lambda completion, gold: lenient(completion, gold, config.lenient)


def parts(config: TaskConfig, completion: str, right: bool) -> Parts:
    """The reward: 1 if right, and what `task.format_reward` adds for the form.

    Source: YixuanEvenXu/pods, utils/data.py: `when_wrong` at 3fc107e, the release that holds their
    GSM8K results; `additive` at 187f43b, of their Llama results; `none` of their MATH results;
    `open_r1`: open-r1's rewards.py at 3fc107e, of their 8-GPU runs, three parts of weight 1; there
    an answer also had to be LaTeX, so that a bare right number earned nothing.
    """
    kind, form = config.format_reward, config.answer_format
    if kind == "open_r1":
        return Parts(float(right), float(strict_form(completion)), strict_tag_score(completion))
    if kind == "additive" or (kind == "when_wrong" and not right):
        form_part, tags = form_score(completion, form), tag_score(completion, form)
        return Parts(float(right), 0.1 * form_part, 0.1 * tags)
    return Parts(float(right))


def _grader(
    config: TaskConfig, verdict: Callable[[str, str], str], generous: Lenient | None
) -> Grading:
    """Make `grade` of `verdict(answer, gold)`, which sees the one closed answer only.

    Args:
        config: of the task.
        verdict: what the records have.
        generous: what the reward goes by instead.
    """
    form = config.answer_format

    def grade(completion: str, gold: str) -> Grade:
        answer = closed_answer(completion, form)
        found = "none" if answer is None else verdict(answer, gold)
        right = found == "right" if generous is None else generous(completion, gold)
        return Grade(found, well_formed(completion, form), parts(config, completion, right))

    return grade
