"""The records of runs as numbers, one per step: score, seconds and tokens.

A log may have a step twice for four reasons, which are told apart here. Different columns of a step
(training and evaluation) are one record. A log that goes back to a step was resumed there, so what
it had of later steps is abandoned. A log that goes back to its beginning has two runs, of which the
longer counts. Several records of one step beside each other come from several ranks or test sets,
and the mapping says which of them counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pods_lab.audit import values
from pods_lab.audit.formats import Log
from pods_lab.audit.lines import NUMBERS, RANKS, Line, read_lines
from pods_lab.audit.mapping import MEAN, SUM, Mapping, is_value

Floats = NDArray[np.float64]
SINCE_1970 = 1e8  # seconds: a larger number is a time of day, since no run takes three years
Notes = dict[str, list[str]]
"""Sentences on what was done, and the runs that each is about."""


@dataclass
class Records:
    """The records of one run in the order of steps, one each: arrays (P,) of P steps."""

    run: str
    steps: Floats
    scores: Floats
    seconds: Floats
    """As recorded, so a duration, a time of day or the amount of a step; NaN: none."""
    tokens: Floats
    attempts: NDArray[np.intp]
    """How often the run had been resumed when it wrote the record."""
    faults: list[str] = field(default_factory=list)
    """What of the run is left out, and why."""
    unusable: str = ""
    """Why the whole run is left out; empty: it is not."""


def read_records(log: Log, mapping: Mapping, notes: Notes) -> Records:
    """Read the records of a run, and add to the notes what was chosen among them."""
    read = read_lines(log, mapping)
    found = _chosen(read.lines, mapping)
    attempts = _attempts(found)
    doubled = _doubled(found, attempts, "score")
    rank = next((name for name in read.tellers if name.lower() in RANKS), None)
    if doubled and rank is not None and mapping.several is None:
        found = _of_first_rank(log.name, found, rank, len(doubled), notes)
        attempts = _attempts(found)
        doubled = _doubled(found, attempts, "score")

    found, attempts = _without_abandoned(log.name, found, attempts, notes)
    records = _by_step(log.name, found, attempts, mapping)
    records.faults += read.faults
    if doubled and mapping.several != MEAN:
        records.unusable = _said_of_doubled(doubled, read.tellers)
    for key in ("seconds", "tokens"):
        if (getattr(mapping, key) or "").startswith(SUM) and _doubled(found, attempts, key):
            records.faults.append(f"steps have several {key} that differ, so they are not used")
            setattr(records, key, np.full(len(records.steps), np.nan))
    return records


def _of_first_rank(
    run: str, found: Sequence[Line], rank: str, steps: int, notes: Notes
) -> list[Line]:
    """Leave the records of the lowest rank, and those that have none; `steps` have several."""
    ranks = [record.row[rank] for record in found if rank in record.row]
    lowest = min(ranks, key=values.number)
    note = (
        f"several records of a step, of which those with {rank}={lowest} count "
        f"(several: {rank}=VALUE or {MEAN} chooses others)"
    )
    notes.setdefault(note, []).append(f"{run} ({steps} steps)")
    return [record for record in found if record.row.get(rank, lowest) == lowest]


def _chosen(found: Sequence[Line], mapping: Mapping) -> list[Line]:
    """Leave out the records that `several: COLUMN=VALUE` does not want."""
    if mapping.several is None or mapping.several == MEAN:
        return list(found)
    column, _, value = mapping.several.partition("=")
    kept = []
    for record in found:
        cell = record.row.get(column)
        if cell is None or is_value(cell, value):
            kept.append(record)
    return kept


def _attempts(found: Sequence[Line]) -> list[int]:
    """Count for each record how often the log had gone back to a step that it has already.

    Records that are only out of order do not count, since no step has the same columns twice. If
    the time of day goes back with the step, two processes wrote the log and none was resumed.
    """
    times = [record.numbers["seconds"] for record in found]
    known = [time for time in times if not math.isnan(time)]
    times_of_day = min(known, default=0.0) > SINCE_1970
    attempts = []
    attempt = 0
    latest = -math.inf
    highest = -math.inf
    seen: set[Any] = set()
    for record in found:
        key = (record.step, record.columns, record.teller)
        time = record.numbers["seconds"]
        together = times_of_day and time <= latest
        if key in seen and record.step < highest and not together:
            attempt += 1
            seen.clear()
            highest = -math.inf
        seen.add(key)
        highest = max(highest, record.step)
        latest = latest if math.isnan(time) else max(latest, time)
        attempts.append(attempt)
    return attempts


def _doubled(found: Sequence[Line], attempts: Sequence[int], key: str) -> list[tuple[Line, Line]]:
    """Return two records of each step that have different numbers for one key."""
    first: dict[Any, Line] = {}
    doubled = {}
    for record, attempt in zip(found, attempts, strict=True):
        number = record.numbers[key]
        if math.isnan(number):
            continue
        other = first.setdefault((record.step, attempt), record)
        if other.numbers[key] != number:
            doubled[record.step, attempt] = (other, record)
    return list(doubled.values())


def _said_of_doubled(doubled: Sequence[tuple[Line, Line]], tellers: Sequence[str]) -> str:
    """Say how records of a step differ, and how to choose among them."""
    one, other = doubled[0]
    differ = [name for name in tellers if one.row.get(name) != other.row.get(name)]
    said = [f"{name} ({one.row.get(name)}, {other.row.get(name)})" for name in differ]
    scores = f"{one.numbers['score']:g} and {other.numbers['score']:g} at step {one.step:g}"
    which = f"which differ in {' and '.join(said)}" if said else "which no text or rank tells apart"
    column = differ[0] if differ else "COLUMN"
    value = one.row.get(differ[0]) if differ else "VALUE"
    choice = f"several: {column}={value} or {MEAN} in the mapping chooses"
    return f"{len(doubled)} steps have several scores ({scores}), {which}; {choice}"


def _without_abandoned(
    run: str, found: Sequence[Line], attempts: Sequence[int], notes: Notes
) -> tuple[list[Line], list[int]]:
    """Leave out what a resumed run had of later steps, and the shorter of two runs of one log."""
    if not attempts or attempts[-1] == 0:
        return list(found), list(attempts)
    kept: list[tuple[Line, int]] = []
    for attempt in range(attempts[-1] + 1):
        part = [record for record, one in zip(found, attempts, strict=True) if one == attempt]
        start = min(record.step for record in part)
        end = max(record.step for record in part)
        begins = min((record.step for record, _ in kept), default=math.inf)
        before = max((record.step for record, _ in kept), default=-math.inf)
        if attempt == 0:
            kept = [(record, attempt) for record in part]
        elif start > begins:
            note = "resumed runs, whose later records count"
            notes.setdefault(note, []).append(f"{run} (from step {before:g} back to {start:g})")
            kept = [(record, one) for record, one in kept if record.step < start]
            kept += [(record, attempt) for record in part]
        else:
            note = "logs with a run that was begun anew, of which the longer counts"
            notes.setdefault(note, []).append(f"{run} (to step {before:g}, then to {end:g})")
            if end >= before:
                kept = [(record, attempt) for record in part]
    return [record for record, _ in kept], [attempt for _, attempt in kept]


def _by_step(run: str, found: Sequence[Line], attempts: Sequence[int], mapping: Mapping) -> Records:
    """Make one record of each step: its last score, or their mean, and its earliest time."""
    steps = sorted({record.step for record in found})
    place = {step: index for index, step in enumerate(steps)}
    columns: dict[str, list[list[float]]] = {key: [[] for _ in steps] for key in NUMBERS}
    attempt_of = np.zeros(len(steps), np.intp)
    for record, attempt in zip(found, attempts, strict=True):
        index = place[record.step]
        attempt_of[index] = max(attempt_of[index], attempt)
        for key in NUMBERS:
            if not math.isnan(record.numbers[key]):
                columns[key][index].append(record.numbers[key])
    average = mapping.several == MEAN
    scores = [(np.mean(cell) if average else cell[-1]) if cell else np.nan
              for cell in columns["score"]]  # fmt: skip
    return Records(
        run=run,
        steps=np.array(steps, float),
        scores=np.array(scores, float),
        seconds=np.array([min(cell, default=np.nan) for cell in columns["seconds"]], float),
        tokens=np.array([max(cell, default=np.nan) for cell in columns["tokens"]], float),
        attempts=attempt_of,
    )
