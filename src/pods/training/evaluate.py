"""Evaluation: one policy x Q questions x R independent sampled repeats, one record each.

It runs in fixed chunks that the config determines, so that an evaluation that was cut off resumes
where it stopped and ends in the same records.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile

from pods.config.schema import Config
from pods.engines.base import Engine
from pods.runs.evaluations import EvaluationRecord, FurtherRecord, is_record
from pods.seeding import evaluation_seeds
from pods.types import GenerationRequest, Grader, Problem, Prompt, Rollout, Sampling, Task


@dataclass(frozen=True)
class AskedSet:
    """The questions of one test set, as a run asks them."""

    name: str
    """Name of a further test set; empty: the main one."""
    task: Task
    """The task with exactly these questions as its test set."""
    questions: Sequence[Prompt]
    """Token ids of each question."""


def evaluation_questions(config: Config, task: Task) -> tuple[Problem, ...]:
    """Return the questions of every evaluation: equal in all runs with the same key.

    Raises:
        ValueError: the test set has fewer questions.
    """
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
    keep: Callable[[str], object] | None = None,
) -> Iterator[list[EvaluationRecord]]:
    """Answer every test question R times; yield the records of one chunk after another.

    Args:
        config: config of the run.
        task: task whose test set holds exactly the questions.
        prompts: token ids of each question.
        engine: generates from the policy to be evaluated.
        step: step of the checkpoint; part of each seed, as is the repeat.
        done: number of records that exist already and are not repeated: whole chunks, or all.
        test_set: name of a further test set, which is part of its seeds.
        keep: called with each completion, in the order of the records, before they are yielded.
    """
    sampling = Sampling(config.evaluation.temperature, config.sampling.max_completion_tokens)
    requests, grader = _requests(config, task, step, test_set), task.test_grader
    size = _chunk(config, len(requests))
    for start in range(done, len(requests), size):
        chunk = requests[start : start + size]
        seeds = [seed for _, _, seed in chunk]
        on_completion = grader.on_completion([task.test[q] for _, q, _ in chunk])
        answers = engine.generate(
            GenerationRequest([prompts[q] for _, q, _ in chunk], 1, sampling, seeds), on_completion
        )
        records = [
            _record(grader, task.test[q], repeat, rollout, seed)
            for (repeat, q, seed), [rollout] in zip(chunk, answers, strict=True)
        ]
        texts = [rollout.text for [rollout] in answers]
        if keep is not None:
            for text in texts:
                keep(text)
        if test_set:
            records = [_further(grader, *each) for each in zip(records, texts, strict=True)]
        yield records


def already_done(
    config: Config,
    task: Task,
    step: int,
    rows: Sequence[Mapping[str, object]],
    test_set: str = "",
) -> int:
    """Count the records that need not be repeated: whole chunks of what was asked, or all.

    A record that is not the answer to its request (a damaged or unexpected line) ends the count.
    """
    requests = _requests(config, task, step, test_set)
    graded = task.test_grader.lenient is not None
    requested = [(r, task.test[q].id, seed, graded) for r, q, seed in requests]
    valid = takewhile(lambda row: is_record(row, test_set), rows)
    answers = [
        (row["repeat"], row["question"], row["seed"], row["lenient"] is not None) for row in valid
    ]
    same = (request == answer for request, answer in zip(requested, answers, strict=False))
    count = sum(takewhile(bool, same))
    return count if count == len(requests) else count - count % _chunk(config, len(requests))


def _chunk(config: Config, requests: int) -> int:
    """Return how many answers are generated in one call, and written together."""
    return config.engine.evaluation_chunk or requests


def _requests(config: Config, task: Task, step: int, test_set: str) -> list[tuple[int, int, int]]:
    """Return repeat, question index and seed of every record, in order."""
    return [
        (r, q, seed)
        for r in range(config.evaluation.repeats)
        for q, seed in enumerate(evaluation_seeds(config.seed, step, r, len(task.test), test_set))
    ]


def _further(grader: Grader, record: EvaluationRecord, text: str) -> FurtherRecord:
    """Add the given answer to the record of a further test set."""
    assert grader.given is not None  # of each grader of `pods.tasks.load.load_further`
    return FurtherRecord(**asdict(record), answer=grader.given(text))


def _record(
    grader: Grader, problem: Problem, repeat: int, rollout: Rollout, seed: int
) -> EvaluationRecord:
    grade = grader.grade(rollout.text, problem.gold)
    return EvaluationRecord(
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
