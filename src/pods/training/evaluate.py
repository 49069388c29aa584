"""Evaluation: one policy x Q questions x R independent sampled repeats, one record each.

It runs in fixed chunks that the config determines, so that an evaluation that was cut off resumes
where it stopped and ends in the same records.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.runs.evaluations import DECODER, EvaluationRecord, asked
from pods.types import GenerationRequest, Grader, Problem, Prompt, Rollout, Sampling, Task


def evaluation_questions(config: Config, task: Task) -> tuple[Problem, ...]:
    """Return the questions of every evaluation: equal in all runs with the same key."""
    wanted = config.evaluation.questions
    if wanted is not None and wanted > len(task.test):
        raise ValueError(f"evaluation.questions={wanted}: the test set has {len(task.test)}")
    return task.test[:wanted]


def evaluate(
    config: Config,
    task: Task,
    prompts: Sequence[Prompt],
    engine: Engine,
    step: int,
    done: int,
    test_set: str = "",
) -> Iterator[list[tuple[EvaluationRecord, str]]]:
    """Answer every test question R times; yield the records and completions of chunk after chunk.

    The task's test set holds exactly the questions, whose token ids are `prompts`. `done` records
    exist already: whole chunks, or all. Part of each seed are the checkpoint's step, the repeat and
    `test_set`, the name of another test set than the run's own.
    """
    limit, top_k = config.sampling.max_completion_tokens, config.sampling.top_k
    sampling = Sampling(config.evaluation.temperature, limit, top_k)
    requests = asked(config, step, [problem.id for problem in task.test], test_set)
    grader, size = task.test_grader, _chunk(config, len(requests))
    for start in range(done, len(requests), size):
        chunk = requests[start : start + size]
        numbers = [(start + i) % len(task.test) for i in range(len(chunk))]
        problems = [task.test[number] for number in numbers]
        texts, seeds = [prompts[number] for number in numbers], [seed for _, _, seed in chunk]
        request = GenerationRequest(texts, 1, sampling, seeds)
        answers = engine.generate(request, grader.on_completion(problems))
        yield [
            (_record(grader, repeat, problem, rollout, seed), rollout.text)
            for (repeat, _, seed), problem, [rollout] in zip(chunk, problems, answers, strict=True)
        ]


def _record(
    grader: Grader, repeat: int, problem: Problem, rollout: Rollout, seed: int
) -> EvaluationRecord:
    grade, length = grader.grade(rollout.text, problem.gold), len(rollout.completion_ids)
    lenient = None if grader.lenient is None else grader.lenient(rollout.text, problem.gold)
    graded = (grade.correct, grade.format, lenient, grade.verdict)
    return EvaluationRecord(repeat, problem.id, *graded, length, rollout.finished, seed)


def already_done(config: Config, task: Task, step: int, content: bytes) -> int:
    """Count the records that need not be repeated: whole chunks of what was asked, or all.

    A record that is not the answer to its request (a damaged or unexpected line) ends the count.
    """
    wanted = asked(config, step, [problem.id for problem in task.test])
    count, lines = 0, content.split(b"\n")[:-1]
    with suppress(ValueError):
        for request, line in zip(wanted, lines, strict=False):
            record = DECODER.decode(line if line.endswith(b"}") else b"")
            if (record.repeat, record.question, record.seed) != request:
                break
            count += 1
    return count if count == len(wanted) else count - count % _chunk(config, len(wanted))


def _chunk(config: Config, requests: int) -> int:
    """Return how many answers are generated in one call, and written together."""
    rows = config.engine.max_rows * config.hardware.processes
    return rows if config.engine.name == "transformers" else requests
