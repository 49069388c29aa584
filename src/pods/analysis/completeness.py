"""Check a study's runs for every (checkpoint, repeat, question), one line per problem.

A problem is something missing, duplicated, cut off, unexpected or contradictory.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from pods.analysis.run_reader import Records, Row, Run
from pods.runs.checkpoint import READ_ERRORS, damage
from pods.runs.files import read_or_empty
from pods.seeding import evaluation_seeds


@dataclass(frozen=True)
class Problem:
    """Something about a run that keeps it from being complete."""

    label: str
    """Series, seed and, where it has one, step."""
    message: str
    step: int | None = None
    """The evaluation that cannot be used because of it; None: it concerns the whole run."""
    unusable: bool = False
    """Nothing of the run can be used, because its clock or its identity is in doubt."""
    test_set: str = ""
    """Name of a further test set: the problem is of that evaluation alone."""

    def __str__(self) -> str:
        """Format the problem as one line."""
        return f"{self.label}: {self.message}"


def questions_of(runs: Sequence[Run], test_set: str = "") -> list[str]:
    """List the questions that at least half of the evaluations answer, in test set order.

    Not those of all evaluations: one damaged record must not put the blame on all others.

    Args:
        runs: whose data are equal.
        test_set: name of a further test set; empty: the main one.
    """
    records = [run.further[test_set].records if test_set else run.records for run in runs]
    answered = [evaluation.question for of_run in records for evaluation in of_run.values()]
    if not answered:
        return []
    # the evaluations of a run mostly share one list
    distinct = {id(names): tuple(dict.fromkeys(names)) for names in answered}
    orders = Counter(distinct[id(names)] for names in answered)
    [(usual, _)] = orders.most_common(1)
    count: Counter[str] = Counter()
    for order, evaluations in orders.items():
        count.update(dict.fromkeys(order, evaluations))
    known = dict.fromkeys([*usual, *count])
    return [question for question in known if 2 * count[question] >= len(answered)]


def problems(run: Run, label: str, questions: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """Name everything that keeps a run from being complete, and each test set of it.

    Args:
        run: an opened run.
        label: its series and seed.
        questions: what each of its evaluations has to answer, by test set; the main one has no
            name.
    """
    if run.state != "done":
        yield Problem(label, f"run is {run.state} ({run.store.folder})")
    for message in (*run.contradictions, *_log_problems(run)):
        yield Problem(label, message, unusable=True)
    for step in sorted({*run.points, *run.records, *run.unreadable}):
        for message in _evaluation_problems(run, step, questions[""]):
            yield Problem(f"{label} step {step}", message, step)
    for name, further in run.further.items():
        for step in sorted({*run.points, *further.records, *further.unreadable}):
            for message in _record_problems(run, step, questions[name], name):
                yield Problem(f"{label} step {step} on {name}", message, step, test_set=name)
    if run.state == "done":
        for name in sorted(_unexpected_checkpoints(run)):
            yield Problem(label, f"checkpoint {name} belongs to no evaluation point")


def _unexpected_checkpoints(run: Run) -> set[str]:
    with suppress(OSError), os.scandir(run.store.checkpoints) as entries:
        names = {
            entry.name for entry in entries if entry.name.startswith("step-") and entry.is_dir()
        }
        return names - {f"step-{step:06d}" for step in run.points}
    return set()


def _log_problems(run: Run) -> Iterator[str]:
    """Check metrics.jsonl for each step once, a clock that only advances, and a spent budget."""
    steps = [line["step"] for line in run.lines]
    for step, count in sorted(Counter(steps).items()):
        if count > 1:
            yield f"metrics.jsonl has step {step} {count} times"
    expected = range(1, 1 + max([run.step, *steps]))
    missing = set(expected) - set(steps)
    if missing:
        yield f"metrics.jsonl lacks step {_ranges(missing, expected)}"
    clock = [0.0, *(line["train_seconds"] for line in run.lines)]
    if clock != sorted(clock):
        yield "the clock of metrics.jsonl goes backwards"
    budget, last = run.config.budget, max([0, *steps])
    early = budget.train_seconds is None or clock[-1] < budget.train_seconds
    early = early and (budget.max_steps is None or last < budget.max_steps)
    if run.state == "done" and early:
        yield f"run is done, but ends before its budget, at step {last} and {clock[-1]:g} s"


def _evaluation_problems(run: Run, step: int, questions: Sequence[str]) -> Iterator[str]:
    """Check one evaluation and the checkpoint that it belongs to."""
    checkpoint = _checkpoint_problem(run, step) if step in run.points else None
    if checkpoint:
        yield checkpoint
    yield from _record_problems(run, step, questions, "")


def _record_problems(run: Run, step: int, questions: Sequence[str], test_set: str) -> Iterator[str]:
    """Check the records of one evaluation."""
    if step not in run.points:
        yield "evaluated, but it is no evaluation point"
        return
    evaluations = run.further[test_set] if test_set else run
    if step not in evaluations.records:
        yield evaluations.unreadable.get(step, "no evaluation")
        return
    records, repeats = evaluations.records[step], run.config.evaluation.repeats
    in_order = np.repeat(np.arange(repeats), len(questions))
    if records.question == [*questions] * repeats and (records.repeat == in_order).all():
        yield from _wrong_seeds(records, repeats, run.config.seed, step, test_set)
        if records.truncated:
            yield "a line after the last record is cut off"
        return
    answers = list(zip(records.repeat.tolist(), records.question, strict=True))
    yield from _wrong_answers(answers, repeats, questions)


def _checkpoint_problem(run: Run, step: int) -> str | None:
    """Check the clock that a checkpoint recorded."""
    folder = run.store.checkpoint(step)
    try:
        fault = damage(folder, only="clock.json")
        if fault:
            return f"checkpoint: {fault}" if folder.is_dir() else "no checkpoint"
        return _clock_problem(run, step, run.store.clock(folder))
    except READ_ERRORS as error:
        return f"checkpoint cannot be read ({error})"


def _clock_problem(run: Run, step: int, clock: Row) -> str | None:
    """Compare a checkpoint's clock with the run's log."""
    if (clock["run"], clock["step"]) != (run.store.folder.name, step):
        return f"checkpoint is step {clock['step']} of {clock['run']}"
    seconds, logged = clock["train_seconds"], run.points[step]
    if seconds != logged:
        return f"checkpoint was made at {seconds:g} s, but the log says {logged:g} s"
    if step == max(run.points):  # the last checkpoint covers the whole log
        content = read_or_empty(run.store.metrics_path)[: clock["metrics_bytes"]]
        if hashlib.sha256(content).hexdigest() != clock["metrics_sha256"]:
            return "metrics.jsonl is not the log that the checkpoint recorded"
    return None


def _wrong_seeds(
    records: Records, repeats: int, seed: int, step: int, test_set: str
) -> Iterator[str]:
    """Find answers whose seeds show that they are of another run, step, repeat or question."""
    size = len(records.question) // repeats
    for repeat in range(repeats):
        seeds = records.seed[repeat * size : (repeat + 1) * size]
        expected = evaluation_seeds(seed, step, repeat, size, test_set)
        if seeds != expected:
            count = sum(one != other for one, other in zip(seeds, expected, strict=True))
            yield f"repeat {repeat} has {count} answers of another run, step, repeat or question"


def _wrong_answers(
    answers: Sequence[tuple[int, str]], repeats: int, questions: Sequence[str]
) -> Iterator[str]:
    """Name each (repeat, question) that is missing, duplicated, unexpected or out of order."""
    count = Counter(answers)
    for repeat in range(repeats):
        missing = {question for question in questions if not count[repeat, question]}
        duplicates = {question for question in questions if count[repeat, question] > 1}
        if len(missing) == len(questions):
            yield f"repeat {repeat} is missing"
        elif missing:
            yield (
                f"repeat {repeat} lacks {len(missing)} of {len(questions)} questions: "
                f"{_ranges(missing, questions)}"
            )
        if duplicates:
            yield f"repeat {repeat} has duplicates: {_ranges(duplicates, questions)}"
    extra = sorted({str(repeat) for repeat, _ in answers if repeat not in range(repeats)})
    if extra:
        yield f"repeat {', '.join(extra)}: there should be only {repeats} repeats"
    unexpected = sorted({question for _, question in answers} - set(questions))
    if unexpected:
        yield f"unexpected questions, which other evaluations lack: {', '.join(unexpected)}"
    if len(answers) == len(count) == repeats * len(questions) and not (extra or unexpected):
        yield "records are not in the order of the questions"


def _ranges(chosen: Collection[object], order: Sequence[object]) -> str:
    """List the chosen items, neighbours as `first to last`.

    >>> _ranges({1, 2, 3, 5}, range(7))
    '1 to 3, 5'
    """
    rows = [list(row) for inside, row in groupby(order, lambda item: item in chosen) if inside]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)
