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
    """Answer every test question R times, and yield the answers chunk after chunk.

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
        answers = []
        for asked_for, problem, rollouts in zip(chunk, problems, groups, strict=True):
            answers.append(_answer(task.test_grader, asked_for, problem, rollouts[0]))
        yield answers


def _answer(grader: Grader, request: Asked, problem: Problem, rollout: Rollout) -> Answer:
    grade = grader.grade(problem.opened + rollout.text, problem.gold)
    lenient = None
    if grader.lenient is not None:
        lenient = grader.lenient(rollout.text, problem.gold)
    record = EvaluationRecord(
        repeat=request.repeat,
        question=problem.id,
        correct=grade.correct,
        format=grade.format,
        lenient=lenient,
        verdict=grade.verdict,
        length=len(rollout.completion_ids),
        finished=rollout.finished,
        seed=request.seed,
    )
    return Answer(record, rollout.text)
