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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pods.types import Floats
from pods_lab.audit import values
from pods_lab.audit.formats import Log
from pods_lab.audit.lines import RANKS, Line, mixed_step_columns, read_lines
from pods_lab.audit.mapping import MEAN, Mapping, adds_up, is_value

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
    step_column: str = ""
    """The column that the steps are of; others may complete it."""
    mixed_step_columns: str = ""
    """Two columns of steps that may not count the same, see `mixed_step_columns`."""


class _Attempted(NamedTuple):
    """A line, and how often the run had been resumed when it wrote the line."""

    line: Line
    attempt: int


class _Contradiction(NamedTuple):
    """Two lines of one step whose numbers differ."""

    first: Line
    second: Line


def read_records(log: Log, mapping: Mapping, notes: Notes) -> Records:
    """Read the records of a run, and add to the notes what was chosen among them."""
    read = read_lines(log, mapping)
    lines = _with_attempts(_chosen(read.lines, mapping))
    contradictions = _contradictions(lines, "score")
    ranks = [name for name in read.tellers if name.lower() in RANKS]
    if contradictions and ranks and mapping.several is None:
        of_rank = _of_first_rank(log.name, lines, ranks[0], len(contradictions), notes)
        lines = _with_attempts(of_rank)
        contradictions = _contradictions(lines, "score")

    lines = _without_abandoned(log.name, lines, notes)
    records = _by_step(log.name, lines, mapping)
    records.faults += read.faults
    if read.step_columns:
        records.step_column = read.step_columns[0]
        records.mixed_step_columns = mixed_step_columns(log, read.step_columns)
    if contradictions and mapping.several != MEAN:
        records.unusable = _contradiction_message(contradictions, read.tellers)
    _drop_contradicting_amounts(records, lines, mapping)
    return records


def _drop_contradicting_amounts(
    records: Records, lines: Sequence[_Attempted], mapping: Mapping
) -> None:
    """Forget seconds or tokens that are amounts of steps, if a step has several that differ."""
    for key in ("seconds", "tokens"):
        if adds_up(getattr(mapping, key)) and _contradictions(lines, key):
            records.faults.append(f"steps have several {key} that differ, so they are not used")
            setattr(records, key, np.full(len(records.steps), np.nan))


def _of_first_rank(
    run: str, lines: Sequence[_Attempted], rank: str, steps: int, notes: Notes
) -> list[Line]:
    """Leave the records of the lowest rank, and all without a rank; `steps` have several."""
    ranks = [line.row[rank] for line, _ in lines if rank in line.row]
    lowest = min(ranks, key=values.number)
    note = (
        f"several records of a step, of which those with {rank}={lowest} count "
        f"(several: {rank}=VALUE or {MEAN} chooses others)"
    )
    notes.setdefault(note, []).append(f"{run} ({steps} steps)")
    return [line for line, _ in lines if line.row.get(rank, lowest) == lowest]


def _chosen(lines: Sequence[Line], mapping: Mapping) -> list[Line]:
    """Leave out the records that `several: COLUMN=VALUE` does not want."""
    if mapping.several is None or mapping.several == MEAN:
        return list(lines)
    column, _, value = mapping.several.partition("=")
    chosen = []
    for line in lines:
        cell = line.row.get(column)
        if cell is None or is_value(cell, value):
            chosen.append(line)
    return chosen


def _with_attempts(lines: Sequence[Line]) -> list[_Attempted]:
    """Count for each record how often the log had gone back to a step that it has already.

    Records that are only out of order do not count, since no step has the same columns twice. If
    the time of day goes back with the step, two processes wrote the log and none was resumed.
    """
    times = [line.numbers["seconds"] for line in lines]
    are_times_of_day = _are_times_of_day(times)
    attempted = []
    attempt = 0
    latest = -math.inf
    highest = -math.inf
    seen: set[Any] = set()
    for line, time in zip(lines, times, strict=True):
        key = (line.step, line.columns, line.teller)
        is_of_two_processes = are_times_of_day and time <= latest
        if key in seen and line.step < highest and not is_of_two_processes:
            attempt += 1
            seen.clear()
            highest = -math.inf

        seen.add(key)
        highest = max(highest, line.step)
        latest = max(latest, time)  # which is `latest` if the time is NaN
        attempted.append(_Attempted(line, attempt))
    return attempted


def _are_times_of_day(times: Sequence[float]) -> bool:
    """Return whether all times that are known are of day; none is known: they are not."""
    finite = [time for time in times if not math.isnan(time)]
    return bool(finite) and min(finite) > SINCE_1970


def _contradictions(lines: Sequence[_Attempted], key: str) -> list[_Contradiction]:
    """Return two records of each step that have different numbers for one key."""
    first_lines: dict[Any, Line] = {}
    contradictions = {}
    for line, attempt in lines:
        number = line.numbers[key]
        if math.isnan(number):
            continue
        place = (line.step, attempt)
        first = first_lines.setdefault(place, line)
        if first.numbers[key] != number:
            contradictions[place] = _Contradiction(first, line)
    return list(contradictions.values())


def _contradiction_message(contradictions: Sequence[_Contradiction], tellers: Sequence[str]) -> str:
    """Say how records of a step differ, and how to choose among them."""
    first, second = contradictions[0]
    differing = [name for name in tellers if first.row.get(name) != second.row.get(name)]
    which = "which no text or rank tells apart"
    example = "COLUMN=VALUE"
    if differing:
        cells = [f"{name} ({first.row.get(name)}, {second.row.get(name)})" for name in differing]
        which = f"which differ in {' and '.join(cells)}"
        example = f"{differing[0]}={first.row.get(differing[0])}"
    scores = f"{first.numbers['score']:g} and {second.numbers['score']:g} at step {first.step:g}"
    choice = f"several: {example} or {MEAN} in the mapping chooses"
    return f"{len(contradictions)} steps have several scores ({scores}), {which}; {choice}"


def _without_abandoned(run: str, lines: Sequence[_Attempted], notes: Notes) -> list[_Attempted]:
    """Leave out what a resumed run had of later steps, and the shorter of two runs of one log."""
    attempts: dict[int, list[_Attempted]] = {}
    for attempted in lines:
        attempts.setdefault(attempted.attempt, []).append(attempted)

    kept = attempts.pop(0, [])
    for later in attempts.values():
        before = _steps(kept)
        after = _steps(later)
        if after.first > before.first:
            note = "resumed runs, whose later records count"
            place = f"from step {before.last:g} back to {after.first:g}"
            kept = [attempted for attempted in kept if attempted.line.step < after.first] + later
        else:
            note = "logs with a run that was begun anew, of which the longer counts"
            place = f"to step {before.last:g}, then to {after.last:g}"
            if after.last >= before.last:
                kept = later
        notes.setdefault(note, []).append(f"{run} ({place})")
    return kept


class _Steps(NamedTuple):
    """The least and largest step of some records."""

    first: float
    last: float


def _steps(lines: Sequence[_Attempted]) -> _Steps:
    steps = [line.step for line, _ in lines]
    return _Steps(first=min(steps), last=max(steps))


def _by_step(run: str, lines: Sequence[_Attempted], mapping: Mapping) -> Records:
    """Make one record of each step: its last score, or their mean, and its earliest time."""
    steps = sorted({line.step for line, _ in lines})
    place_of = {step: place for place, step in enumerate(steps)}
    last_score = np.full(len(steps), np.nan)
    all_scores: list[list[float]] = [[] for _ in steps]
    seconds = np.full(len(steps), np.nan)
    tokens = np.full(len(steps), np.nan)
    attempts = np.zeros(len(steps), np.intp)
    for line, attempt in lines:
        place = place_of[line.step]
        attempts[place] = max(attempts[place], attempt)
        seconds[place] = np.fmin(seconds[place], line.numbers["seconds"])  # NaN does not count
        tokens[place] = np.fmax(tokens[place], line.numbers["tokens"])
        score = line.numbers["score"]
        if not math.isnan(score):
            last_score[place] = score
            all_scores[place].append(score)

    scores = last_score
    if mapping.several == MEAN:
        scores = np.array([np.mean(several) if several else np.nan for several in all_scores])
    return Records(
        run=run,
        steps=np.array(steps, float),
        scores=scores.astype(float),
        seconds=seconds,
        tokens=tokens,
        attempts=attempts,
    )


def as_final_scores(all_records: Sequence[Records]) -> list[str]:
    """Put the scores of runs that have one each, at different steps, beside each other; say so."""
    ends = []
    for records in all_records:
        scored = np.flatnonzero(np.isfinite(records.scores))
        if len(scored) > 1:
            return []
        ends += records.steps[scored].tolist()
    if len(set(ends)) < 2:
        return []

    for records in all_records:
        scored = np.flatnonzero(np.isfinite(records.scores))
        records.steps[scored] = 1.0
    where = f"{min(ends):g} to {max(ends):g}"
    return [f"each run has one score, and not at equal steps ({where}): only these are compared"]
