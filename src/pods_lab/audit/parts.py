"""Put together the files that a run left: rotated logs, resumed runs, a state per checkpoint."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pods_lab.audit.formats import Log, Row

STATE = "trainer_state.json"  # a log as it was at a checkpoint: the last one has all
CLOCK = "_runtime"  # of W&B: seconds since its process began, also if it resumed a run
COUNTER = "_step"  # of W&B: counts anew in each process, if the trainer gave it no steps
RESUMED = f"resumed, and W&B's {CLOCK} and {COUNTER} go on from the part before"


def whole(parts: Sequence[Log]) -> Log:
    """Make one log of the files of one run, which are in the order of time."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if first.path.name == STATE:
        return max(parts, key=lambda log: len(log.rows))

    rows = list(first.rows)
    notes = list(first.notes)
    config = dict(first.config)
    faults = list(first.faults)
    for part in parts[1:]:
        offsets = _offsets(rows, part.rows)
        if offsets:
            notes.append(RESUMED)
        rows += [_moved(row, offsets) for row in part.rows]
        config |= part.config
        faults += part.faults
    notes = list(dict.fromkeys(notes))
    return replace(first, rows=rows, config=config, faults=faults, notes=notes)


def _offsets(before: Sequence[Row], rows: Sequence[Row]) -> dict[str, float]:
    """Return what is added to W&B's clock and counter, so that they go on after an earlier part.

    None is added to steps that the trainer gave, and to a clock that goes on by itself.
    """
    offsets: dict[str, float] = {}
    times_before = _numbers(before, CLOCK)
    times = _numbers(rows, CLOCK)
    if times_before and times and times[0] < max(times_before):
        offsets[CLOCK] = max(times_before)
    if _counts_from_zero(before) and _counts_from_zero(rows):
        offsets[COUNTER] = len(before)
    return offsets


def _moved(row: Row, offsets: dict[str, float]) -> Row:
    moved = dict(row)
    for key, offset in offsets.items():
        if isinstance(row.get(key), int | float):
            moved[key] = row[key] + offset
    return moved


def _numbers(rows: Sequence[Row], key: str) -> list[Any]:
    return [row[key] for row in rows if isinstance(row.get(key), int | float)]


def _counts_from_zero(rows: Sequence[Row]) -> bool:
    """Return whether the counter is W&B's own: 0, 1, 2, ... since the start of the process."""
    counts = [row.get(COUNTER) for row in rows]
    return bool(rows) and counts == list(range(len(rows)))
