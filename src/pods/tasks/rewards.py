"""Grading of completions: the verdict on the answer, the form around it, and the reward.

No grader raises on any text or evaluates it as code. A reward is a sum of parts, which the records
keep apart.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mathgrade import MathGrader, number, open_r1
from pods.config.schema import Config
from pods.config.task_keys import TaskConfig
from pods.system.machine import cores
from pods.tasks import answers
from pods.tasks.datasets import chainsum
from pods.tasks.datasets.splits import Right
from pods.tasks.lenient import lenient
from pods.types import Grade, Graded, Grader, Parts, Problem, Rollout, Task

MAX_WORKERS = 8
OVERLONG_PENALTY = 0.5  # a right answer has 1; DAPO has a penalty of 1 and rewards of 1 and -1
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

        grade = _grade_function(config, _verdict(same), in_latex)
        return Grader(grade, prefetch=latex.prefetch, lenient=in_latex)

    authors = partial(lenient, era=config.lenient)
    rewarded = None if config.grader == "exact" else authors
    return Grader(_grade_function(config, _verdict(same), rewarded), lenient=authors)


def own_grader(config: TaskConfig, right: Right | None = None) -> Grader:
    """Create the grader of the user's own data, by `right(answer, gold)` if they bring it."""
    if config.answer_format == "chain":
        return Grader(chainsum.grade)
    return Grader(_grade_function(config, _verdict(right or same)))


def _verdict(right: Right) -> Callable[[str, str], str]:
    def verdict(answer: str, gold: str) -> str:
        return "right" if right(answer.strip(), gold) else "wrong"

    return verdict


def same(answer: str, gold: str) -> bool:
    """Compare an answer with a gold, as numbers if the gold is one.

    Otherwise they are texts, whose case and white space do not count, nor quotes and full stops
    around them.

    >>> same("$1,200.00", "1200"), same(" The  Nile. ", '"the nile"'), same("five", "5")
    (True, True, False)
    """
    value = number(gold)
    if value is not None:
        return number(answer) == value
    return _plain_text(answer) == _plain_text(gold)


def _plain_text(text: str) -> str:
    normal = unicodedata.normalize("NFKC", " ".join(text.split()))
    return normal.strip(AROUND).casefold()


def math_grader(config: TaskConfig, check: Callable[[], None] = lambda: None) -> Grader:
    """Create the grader for golds in LaTeX; processes start with the first answer that needs one.

    It calls `check` repeatedly while it waits for a process; `check` may raise.
    """
    grader = MathGrader(_workers(), check)

    def prefetch(completion: str, gold: str) -> None:
        answer = answers.closed_answer(completion, config.answer_format)
        if answer is not None:
            grader.prefetch(answer, gold)

    return Grader(_grade_function(config, grader.verdict), prefetch)


def _workers() -> int:
    return min(MAX_WORKERS, max(1, cores() - 1))


def grade_rollouts(
    config: Config, task: Task, problems: Sequence[Problem], rollouts: Sequence[Rollout]
) -> list[Grade]:
    """Grade a batch as training does: verdict and form, lengths, and the user's rewards.

    Each rollout has its problem at the same place.
    """
    limit = config.sampling.max_completion_tokens
    batch = []
    for problem, rollout in zip(problems, rollouts, strict=True):
        grade = task.train_grader.grade(problem.opened + rollout.text, problem.gold)
        grade = punish_overlong(config.task, grade, len(rollout.completion_ids), limit)
        batch.append(Graded(problem, rollout, grade))

    if task.own_reward is not None:
        return task.own_reward(batch)
    return [graded.grade for graded in batch]


def punish_overlong(config: TaskConfig, grade: Grade, length: int, limit: int) -> Grade:
    """Return a grade whose reward has lost what a completion of `length` tokens loses.

    DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13), in verl's reward manager (`dapo.py`
    at 03150d4) times a half: nothing up to limit - buffer tokens, then linearly more up to
    `OVERLONG_PENALTY` at the limit, where buffer = `task.overlong_tokens`.
    """
    buffer = config.overlong_tokens
    if buffer is None:
        return grade
    overlong = -OVERLONG_PENALTY * max(0, length - (limit - buffer)) / buffer
    return replace(grade, parts=grade.parts._replace(overlong=overlong))


def reward_parts(config: TaskConfig, completion: str, right: bool) -> Parts:
    """Return the parts of the reward: 1 if right, and what `task.format_reward` adds for the form.

    Source: YixuanEvenXu/pods, utils/data.py: `when_wrong` at 3fc107e, the release that holds their
    GSM8K results; `additive` at 187f43b, of their Llama results; `none` of their MATH results;
    `open_r1`: open-r1's rewards.py at 3fc107e, of their 8-GPU runs, three parts of weight 1.
    """
    kind = config.format_reward
    if kind == "open_r1":
        strict = answers.strict_form(completion)
        tags = answers.mark_score(completion, answers.STRICT_MARKS)
        return Parts(correct=float(right), format=float(strict), tags=tags)

    if kind == "additive" or (kind == "when_wrong" and not right):
        form = answers.form_score(completion, config.answer_format)
        tags = answers.mark_score(completion, answers.MARKS[config.answer_format])
        return Parts(correct=float(right), format=0.1 * form, tags=0.1 * tags)
    return Parts(correct=float(right))


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
        right = result == "right"
        if rewarded is not None:
            right = rewarded(completion, gold)
        return Grade(
            verdict=result,
            format=answers.well_formed(completion, form),
            parts=reward_parts(config, completion, right),
        )

    return grade
