"""Evaluation: one policy x Q questions x R independent sampled repeats, a record each.

It runs in fixed chunks that the config determines, so that an evaluation that was cut off goes on
where it stopped and ends in the same records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pods.config import Config
from pods.randomness import evaluation_seeds
from pods.records import Grader, Problem, Rollout, Sampling, Task
from pods.rollouts.engine import Engine, Prompt
from pods.runs.points import is_record


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One question answered once."""

    repeat: int
    question: str
    correct: bool
    """The answer is right, exactly."""
    format: bool
    lenient: bool | None
    """It is right by the PODS authors' grader; None where the test set has none."""
    verdict: str
    """One of `records.VERDICTS`."""
    length: int
    """Completion tokens."""
    finished: bool
    seed: int


def questions(config: Config, task: Task) -> tuple[Problem, ...]:
    """The questions of every evaluation of the run: the same in all runs with the same key.

    Raises:
        ValueError: there are not as many.
    """
    wanted = config.evaluation.questions
    if wanted is not None and wanted > len(task.test):
        raise ValueError(f"evaluation.questions={wanted}: the test set has {len(task.test)}")
    return task.test[:wanted]


def evaluate(
    config: Config, task: Task, prompts: Sequence[Prompt], engine: Engine, step: int, done: int
) -> Iterator[list[EvalRecord]]:
    """Answer every test question R times; yield the records of one chunk after another.

    Args:
        config: of the run.
        task: its test set holds the questions, and nothing else.
        prompts: token ids of each question.
        engine: generates from the policy to be evaluated.
        step: of the checkpoint; part of each seed, as is the repeat.
        done: records that exist already and are not made again: whole chunks, or all.
    """
    sampling = Sampling(config.evaluation.temperature, config.sampling.max_completion_tokens)
    requests = _requests(config, task, step)
    size = _chunk(config, len(requests))
    for start in range(done, len(requests), size):
        chunk = requests[start : start + size]
        seeds = [seed for _, _, seed in chunk]
        ready = task.examiner.ready([task.test[q] for _, q, _ in chunk])
        answers = engine.generate([prompts[q] for _, q, _ in chunk], 1, sampling, seeds, ready)
        yield [
            _record(task.examiner, task.test[q], repeat, rollout, seed)
            for (repeat, q, seed), [rollout] in zip(chunk, answers, strict=True)
        ]


def already_done(
    config: Config, task: Task, step: int, rows: Sequence[Mapping[str, object]]
) -> int:
    """How many records need not be made again: whole chunks of what was asked, or all.

    A record that is not the answer to its request (a damaged or foreign line) ends the count.
    """
    requests = _requests(config, task, step)
    graded = task.examiner.lenient is not None
    asked = [(r, task.test[q].id, seed, graded) for r, q, seed in requests]
    whole = takewhile(is_record, rows)
    there = [
        (row["repeat"], row["question"], row["seed"], row["lenient"] is not None) for row in whole
    ]
    same = (request == answer for request, answer in zip(asked, there, strict=False))
    count = sum(takewhile(bool, same))
    return count if count == len(requests) else count - count % _chunk(config, len(requests))


def _chunk(config: Config, requests: int) -> int:
    """Answers that are asked for in one call, and written together."""
    return config.engine.evaluation_chunk or requests


def _requests(config: Config, task: Task, step: int) -> list[tuple[int, int, int]]:
    """Repeat, question and seed of every record, in order."""
    return [
        (r, q, seed)
        for r in range(config.evaluation.repeats)
        for q, seed in enumerate(evaluation_seeds(config.seed, step, r, len(task.test)))
    ]


def _record(
    grader: Grader, problem: Problem, repeat: int, rollout: Rollout, seed: int
) -> EvalRecord:
    grade = grader.grade(rollout.text, problem.gold)
    return EvalRecord(
        repeat,
        problem.id,
        grade.correct,
        grade.format,
        None if grader.lenient is None else grader.lenient(rollout.text, problem.gold),
        grade.verdict,
        len(rollout.completion_ids),
        rollout.finished,
        seed,
    )
