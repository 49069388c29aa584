"""Evaluation: one policy x Q questions x R independent sampled repeats, one record each.

It runs in fixed chunks that the config determines, so that an evaluation that was cut off continues
after its last chunk and ends in the same records.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.runs.evaluations import Asked, EvaluationRecord, asked
from pods.types import GenerationRequest, Grader, Problem, Prompt, Rollout, Sampling, Task


class Completed(NamedTuple):
    """One question of an evaluation that the engine has answered."""

    asked: Asked
    problem: Problem
    rollout: Rollout


class Answer(NamedTuple):
    """One answer of an evaluation."""

    record: EvaluationRecord
    completion: str


def evaluation_questions(config: Config, task: Task) -> tuple[Problem, ...]:
    """Return the questions of every evaluation: equal in all runs with the same key."""
    wanted = config.evaluation.questions
    if wanted is not None and wanted > len(task.test):
        raise ValueError(f"evaluation.questions={wanted}: the test set has {len(task.test)}")
    return task.test[:wanted]


def chunk_size(config: Config, requests: int) -> int:
    """Return how many answers are generated in one call, and written together."""
    if config.engine.name != "transformers":
        return requests
    return config.engine.max_rows * config.hardware.processes


def evaluate(
    config: Config,
    task: Task,
    prompts: Sequence[Prompt],
    engine: Engine,
    step: int,
    done: int = 0,
    test_set: str = "",
) -> Iterator[list[Answer]]:
    """Answer every test question R times, and yield the graded answers chunk after chunk.

    The arguments are those of `complete`.
    """
    for chunk in complete(config, task, prompts, engine, step, done, test_set):
        yield [graded(task.test_grader, completed) for completed in chunk]


def complete(
    config: Config,
    task: Task,
    prompts: Sequence[Prompt],
    engine: Engine,
    step: int,
    done: int = 0,
    test_set: str = "",
) -> Iterator[list[Completed]]:
    """Let the engine answer every test question R times, chunk after chunk.

    Args:
        config: its evaluation and sampling decide how often and how the questions are asked.
        task: its test set holds exactly the questions.
        prompts: token ids of each question.
        engine: generates the answers.
        step: the checkpoint's step, a part of each seed.
        done: answers that exist already: whole chunks, or all.
        test_set: name of a test set other than the run's own, which is also a part of each seed.
    """
    limit = config.sampling.max_completion_tokens
    sampling = Sampling(config.evaluation.temperature, limit, config.sampling.top_k)
    requests = asked(config, step, [problem.id for problem in task.test], test_set)
    size = chunk_size(config, len(requests))

    for start in range(done, len(requests), size):
        chunk = requests[start : start + size]
        places = [(start + i) % len(task.test) for i in range(len(chunk))]
        problems = [task.test[place] for place in places]
        request = GenerationRequest(
            prompts=[prompts[place] for place in places],
            n=1,
            sampling=sampling,
            seeds=[request.seed for request in chunk],
        )
        groups = engine.generate(request, task.test_grader.on_completion(problems))
        yield [
            Completed(asked=asked_for, problem=problem, rollout=rollout)
            for asked_for, problem, [rollout] in zip(chunk, problems, groups, strict=True)
        ]


def graded(grader: Grader, completed: Completed) -> Answer:
    """Grade an answer."""
    rollout = completed.rollout
    gold = completed.problem.gold
    text = completed.problem.opened + rollout.text
    grade = grader.grade(text, gold)
    lenient = None
    if grader.lenient is not None:
        lenient = grader.lenient(text, gold)
    record = EvaluationRecord(
        repeat=completed.asked.repeat,
        question=completed.problem.id,
        correct=grade.correct,
        format=grade.format,
        lenient=lenient,
        verdict=grade.verdict,
        length=len(rollout.completion_ids),
        finished=rollout.finished,
        seed=completed.asked.seed,
    )
    return Answer(record, rollout.text)
