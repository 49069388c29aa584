"""The grid of a study, (run, checkpoint, repeat, question), and a line for each hole in it."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from pods.analysis.read import Run
from pods.randomness import evaluation_seed
from pods.runs.checkpoint import damage


@dataclass(frozen=True)
class Hole:
    """Something that is missing, there twice, cut off, or not what it says it is."""

    where: str
    what: str
    step: int | None = None
    """Of the evaluation that cannot be used for it; None: it is of the whole run."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.what}"


def questions_of(runs: Sequence[Run]) -> list[str]:
    """All questions that any evaluation of these runs answers, in the order of the test set."""
    found: dict[str, None] = {}
    for run in runs:
        for records in run.records.values():
            if not isinstance(records, str):
                found |= dict.fromkeys(records.question)
    return list(found)


def holes(run: Run, where: str, questions: Sequence[str]) -> Iterator[Hole]:
    """Name everything that the grid wants of a run and its folder does not have.

    Args:
        run: opened.
        where: series and seed, in words.
        questions: that each of its evaluations has to answer.
    """
    if run.state != "done":
        yield Hole(where, f"run is {run.state} ({run.store.folder})")
    yield from _log_holes(run, where)
    for step in sorted({*run.points, *run.records}):
        at = f"{where} step {step}"
        if step not in run.points:
            yield Hole(at, "evaluated, but it is no evaluation point", step)
            continue
        wrong = _checkpoint_hole(run, step)
        if wrong:
            yield Hole(at, wrong, step)
        if step not in run.records:
            yield Hole(at, "no evaluation", step)
            continue
        for what in record_holes(run, step, questions):
            yield Hole(at, what, step)
    copies = {p.name for p in run.store.checkpoints.glob("step-*") if p.is_dir()}
    copies -= {run.store.checkpoint(step).name for step in run.points}
    for name in sorted(copies) if run.state == "done" else []:
        yield Hole(where, f"checkpoint {name} is of no evaluation point")


def _log_holes(run: Run, where: str) -> Iterator[Hole]:
    """Steps that metrics.jsonl lacks or has twice, and time that goes backwards."""
    steps = [line["step"] for line in run.lines]
    last = run.store.status().get("step", 0)
    for step, count in sorted(Counter(steps).items()):
        if count > 1:
            yield Hole(where, f"metrics.jsonl has step {step} {count} times")
    wanted = range(1, 1 + max([last, *steps]))
    absent = set(wanted) - set(steps)
    if absent:
        yield Hole(where, f"metrics.jsonl lacks step {_ranges(absent, wanted)}")
    clock = [line["train_seconds"] for line in run.lines]
    if clock != sorted(clock):
        yield Hole(where, "the clock of metrics.jsonl goes backwards")


def _checkpoint_hole(run: Run, step: int) -> str | None:
    """What is wrong with the record of when a checkpoint was made."""
    folder = run.store.checkpoint(step)
    if not folder.is_dir():
        return "no checkpoint"
    wrong = damage(folder, only="clock.json")
    if wrong:
        return f"checkpoint: {wrong}"
    clock = run.store.clock(folder)
    if (clock["run"], clock["step"]) != (run.store.folder.name, step):
        return f"checkpoint is step {clock['step']} of {clock['run']}"
    if clock["train_seconds"] != run.points[step]:
        at, logged = clock["train_seconds"], run.points[step]
        return f"checkpoint is of {at:g} s, the log says {logged:g} s"
    return None


def record_holes(run: Run, step: int, questions: Sequence[str]) -> Iterator[str]:
    """Name every (repeat, question) that one evaluation lacks, has twice or should not have."""
    records, repeats = run.records[step], run.config.evaluation.repeats
    if isinstance(records, str):
        yield records
        return
    in_order = np.repeat(np.arange(repeats), len(questions))
    if records.question == [*questions] * repeats and (records.repeat == in_order).all():
        for repeat in range(repeats):
            seed = records.seed[repeat * len(questions)]
            if seed != evaluation_seed(run.config.seed, step, repeat, 0):
                yield f"repeat {repeat} is of another run, step or repeat (its seed says so)"
        return
    found = list(zip(records.repeat.tolist(), records.question, strict=True))
    yield from _uneven(found, repeats, questions)


def _uneven(
    found: Sequence[tuple[int, str]], repeats: int, questions: Sequence[str]
) -> Iterator[str]:
    """What of repeats x questions is not there once, and in order."""
    count = Counter(found)
    for repeat in range(repeats):
        absent = {q for q in questions if not count[repeat, q]}
        twice = {q for q in questions if count[repeat, q] > 1}
        if len(absent) == len(questions):
            yield f"repeat {repeat} is missing"
        elif absent:
            yield (f"repeat {repeat} lacks {len(absent)} of {len(questions)} questions: "
                   f"{_ranges(absent, questions)}")  # fmt: skip
        if twice:
            yield f"repeat {repeat} has more than once: {_ranges(twice, questions)}"
    others = sorted({str(repeat) for repeat, _ in found if repeat not in range(repeats)})
    if others:
        yield f"repeat {', '.join(others)}: there are only {repeats}"
    if len(found) == len(count) == repeats * len(questions) and not others:
        yield "records are in another order than the questions"


def _ranges(chosen: Collection[object], order: Sequence[object]) -> str:
    """Name each of the chosen, neighbours as `first to last`.

    >>> _ranges({1, 2, 3, 5}, range(7))
    '1 to 3, 5'
    """
    rows = [list(row) for inside, row in groupby(order, lambda item: item in chosen) if inside]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)
