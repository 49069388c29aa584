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
    for part in parts[1:]:
        continued = _continued(rows, part.rows)
        if continued is not part.rows:
            notes.append(RESUMED)
        rows += continued
    config: Row = {}
    for part in parts:
        config |= part.config
    faults = [fault for part in parts for fault in part.faults]
    notes = list(dict.fromkeys(notes))
    return replace(first, rows=rows, config=config, faults=faults, notes=notes)


def _continued(before: Sequence[Row], rows: list[Row]) -> list[Row]:
    """Let W&B's clock and counter go on where an earlier part of the run ended."""
    if not rows:
        return rows
    offsets = {CLOCK: _last(before, CLOCK), COUNTER: _last(before, COUNTER)}
    if _counts_from_zero(before) and _counts_from_zero(rows):
        offsets[COUNTER] += 1
    else:
        offsets[COUNTER] = 0  # steps that the trainer gave
    if _first(rows, CLOCK) >= offsets[CLOCK]:
        offsets[CLOCK] = 0
    if not any(offsets.values()):
        return rows
    return [row | {key: row[key] + offsets[key] for key in offsets if key in row} for row in rows]


def _numbers(rows: Sequence[Row], key: str) -> list[Any]:
    return [row[key] for row in rows if isinstance(row.get(key), int | float)]


def _first(rows: Sequence[Row], key: str) -> Any:
    return next(iter(_numbers(rows, key)), 0)


def _last(rows: Sequence[Row], key: str) -> Any:
    return max(_numbers(rows, key), default=0)


def _counts_from_zero(rows: Sequence[Row]) -> bool:
    """Return whether the counter is W&B's own: 0, 1, 2, ... since the start of the process."""
    return [row.get(COUNTER) for row in rows] == list(range(len(rows)))
