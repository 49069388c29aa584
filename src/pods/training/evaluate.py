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
    sampling = Sampling(
        temperature=config.evaluation.temperature,
        max_completion_tokens=config.sampling.max_completion_tokens,
        top_k=config.sampling.top_k,
    )
    grader = task.test_grader
    requests = asked(config, step, [problem.id for problem in task.test], test_set)
    size = _chunk(config, len(requests))
    for start in range(done, len(requests), size):
        chunk = requests[start : start + size]
        numbers = [(start + i) % len(task.test) for i in range(len(chunk))]
        problems = [task.test[number] for number in numbers]
        request = GenerationRequest(
            prompts=[prompts[number] for number in numbers],
            n=1,
            sampling=sampling,
            seeds=[seed for _, _, seed in chunk],
        )
        answers = engine.generate(request, grader.on_completion(problems))
        rows = []
        for (repeat, _, seed), problem, rollouts in zip(chunk, problems, answers, strict=True):
            record = _record(grader, repeat, problem, rollouts[0], seed)
            rows.append((record, rollouts[0].text))
        yield rows


def _record(
    grader: Grader, repeat: int, problem: Problem, rollout: Rollout, seed: int
) -> EvaluationRecord:
    grade = grader.grade(rollout.text, problem.gold)
    lenient = None
    if grader.lenient is not None:
        lenient = grader.lenient(rollout.text, problem.gold)
    return EvaluationRecord(
        repeat=repeat,
        question=problem.id,
        correct=grade.correct,
        format=grade.format,
        lenient=lenient,
        verdict=grade.verdict,
        length=len(rollout.completion_ids),
        finished=rollout.finished,
        seed=seed,
    )


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
