"""The grid of a study, (run, checkpoint, repeat, question), and a line for each hole in it."""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from pods.analysis.read import Records, Row, Run
from pods.randomness import evaluation_seeds
from pods.runs.checkpoint import DAMAGED, damage
from pods.runs.files import content_of


@dataclass(frozen=True)
class Hole:
    """Something that is missing, there twice, cut off, or not what it says it is."""

    where: str
    what: str
    step: int | None = None
    """Of the evaluation that cannot be used for it; None: it is of the whole run."""
    untimed: bool = False
    """Nothing of the run can be used: its clock, or what it is, cannot be told."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.what}"


def questions_of(runs: Sequence[Run]) -> list[str]:
    """The questions that the evaluations of these runs answer, in the order of the test set.

    Not of all of them, of at least half: one record that is damaged must not blame all the others.
    """
    answers = [records.question for run in runs
               for records in run.records.values() if not isinstance(records, str)]  # fmt: skip
    if not answers:
        return []
    lists = {id(answer): answer for answer in answers}  # those of a run are mostly one
    asked = {key: tuple(dict.fromkeys(answer)) for key, answer in lists.items()}
    orders = Counter(asked[id(answer)] for answer in answers)
    [(usual, _)] = orders.most_common(1)
    count: Counter[str] = Counter()
    for order, evaluations in orders.items():
        count.update(dict.fromkeys(order, evaluations))
    known = dict.fromkeys([*usual, *count])
    return [question for question in known if 2 * count[question] >= len(answers)]


def holes(run: Run, where: str, questions: Sequence[str]) -> Iterator[Hole]:
    """Name everything that the grid wants of a run and its folder does not have.

    Args:
        run: opened.
        where: series and seed, in words.
        questions: that each of its evaluations has to answer.
    """
    if run.state != "done":
        yield Hole(where, f"run is {run.state} ({run.store.folder})")
    for what in run.foreign:
        yield Hole(where, what, untimed=True)
    for what in _log_holes(run):
        yield Hole(where, what, untimed=True)
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
    for name in sorted(_pointless_checkpoints(run)) if run.state == "done" else []:
        yield Hole(where, f"checkpoint {name} is of no evaluation point")


def _pointless_checkpoints(run: Run) -> set[str]:
    """Folders of checkpoints that are of no evaluation point."""
    with suppress(OSError), os.scandir(run.store.checkpoints) as entries:
        names = {
            entry.name for entry in entries if entry.name.startswith("step-") if entry.is_dir()
        }
        return names - {f"step-{step:06d}" for step in run.points}
    return set()


def _log_holes(run: Run) -> Iterator[str]:
    """Steps that metrics.jsonl lacks or has twice, time that goes backwards or ends too early."""
    steps = [line["step"] for line in run.lines]
    for step, count in sorted(Counter(steps).items()):
        if count > 1:
            yield f"metrics.jsonl has step {step} {count} times"
    wanted = range(1, 1 + max([run.step, *steps]))
    absent = set(wanted) - set(steps)
    if absent:
        yield f"metrics.jsonl lacks step {_ranges(absent, wanted)}"
    clock = [0.0, *(line["train_seconds"] for line in run.lines)]
    if clock != sorted(clock):
        yield "the clock of metrics.jsonl goes backwards"
    budget, last = run.config.budget, max([0, *steps])
    early = budget.train_seconds is None or clock[-1] < budget.train_seconds
    early = early and (budget.max_steps is None or last < budget.max_steps)
    if run.state == "done" and early:
        yield f"it is done, but ends before its budget, at step {last} and {clock[-1]:g} s"


def _checkpoint_hole(run: Run, step: int) -> str | None:
    """What is wrong with the record of when a checkpoint was made."""
    folder = run.store.checkpoint(step)
    try:
        wrong = damage(folder, only="clock.json")
        if wrong:
            return f"checkpoint: {wrong}" if folder.is_dir() else "no checkpoint"
        return _clock_hole(run, step, run.store.clock(folder))
    except DAMAGED as error:
        return f"checkpoint cannot be read ({error})"


def _clock_hole(run: Run, step: int, clock: Row) -> str | None:
    """Where a checkpoint's clock and the run's log tell different stories."""
    if (clock["run"], clock["step"]) != (run.store.folder.name, step):
        return f"checkpoint is step {clock['step']} of {clock['run']}"
    if clock["train_seconds"] != run.points[step]:
        at, logged = clock["train_seconds"], run.points[step]
        return f"checkpoint is of {at:g} s, the log says {logged:g} s"
    if step == max(run.points):  # the last one has seen all of the log
        content = content_of(run.store.metrics_path)[: clock["metrics_bytes"]]
        if hashlib.sha256(content).hexdigest() != clock["metrics_sha256"]:
            return "metrics.jsonl is not what the checkpoint has seen"
    return None


def record_holes(run: Run, step: int, questions: Sequence[str]) -> Iterator[str]:
    """Name every (repeat, question) that one evaluation lacks, has twice or should not have."""
    records, repeats = run.records[step], run.config.evaluation.repeats
    if isinstance(records, str):
        yield records
        return
    in_order = np.repeat(np.arange(repeats), len(questions))
    if records.question == [*questions] * repeats and (records.repeat == in_order).all():
        yield from _foreign(records, repeats, run.config.seed, step)
        if records.cut:
            yield "a line after the last record is cut off"
        return
    found = list(zip(records.repeat.tolist(), records.question, strict=True))
    yield from _uneven(found, repeats, questions)


def _foreign(records: Records, repeats: int, seed: int, step: int) -> Iterator[str]:
    """Answers that are of another run, step, repeat or question: their seeds say so."""
    size = len(records.question) // repeats
    for repeat in range(repeats):
        found = records.seed[repeat * size : (repeat + 1) * size]
        wanted = evaluation_seeds(seed, step, repeat, size)
        if found != wanted:
            wrong = sum(one != other for one, other in zip(found, wanted, strict=True))
            yield f"repeat {repeat} has {wrong} answers of another run, step, repeat or question"


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
    strange = sorted({question for _, question in found} - set(questions))
    if strange:
        yield f"answers what the others are not asked: {', '.join(strange)}"
    if len(found) == len(count) == repeats * len(questions) and not (others or strange):
        yield "records are in another order than the questions"


def _ranges(chosen: Collection[object], order: Sequence[object]) -> str:
    """Name each of the chosen, neighbours as `first to last`.

    >>> _ranges({1, 2, 3, 5}, range(7))
    '1 to 3, 5'
    """
    rows = [list(row) for inside, row in groupby(order, lambda item: item in chosen) if inside]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)
