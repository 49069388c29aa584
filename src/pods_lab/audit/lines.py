"""The lines of a log as numbers: step, score, seconds, tokens, and what could not be read.

What the mapping chose and a log cannot give is said, and no other column takes its place.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pods_lab.audit import values
from pods_lab.audit.formats import Log, Row
from pods_lab.audit.mapping import SUM, Mapping, find_column

NUMBERS = ("score", "seconds", "tokens")
READERS: dict[str, Callable[[object], float]] = {
    "step": values.step,
    "score": values.number,
    "seconds": values.seconds,
    "tokens": values.number,
}
RANKS = ("rank", "local_rank", "global_rank", "process_index", "process", "worker")
"""Columns that say which process wrote a line; the first one, 0, is the main process."""
REPEATS = ("repeat", "trial", "sample", "fold")
MOST_KINDS = 20  # values of a text column that tells lines apart, such as a test set
LONGEST_CELL = 40  # letters of a value that a message shows


@dataclass(frozen=True)
class Line:
    """One line of a log."""

    step: float
    numbers: dict[str, float]
    columns: frozenset[str]
    teller: tuple[Any, ...]
    """Rank, test set and other values that tell lines of a step apart."""
    row: Row


@dataclass(frozen=True)
class Lines:
    """The lines of a log that have a step, in the order of the log."""

    lines: list[Line]
    tellers: list[str]
    """The columns whose values are `Line.teller`, ranks first."""
    faults: list[str]
    """What could not be read, with an example each."""


def read_lines(log: Log, mapping: Mapping) -> Lines:
    """Read the lines of a log as the mapping says."""
    columns = {key: _column(log, getattr(mapping, key)) for key in NUMBERS}
    tellers = _tellers(log, columns.values())
    unread = _Unread()
    lines = list(_lines(log, mapping, columns, tellers, unread))
    return Lines(lines, tellers, list(unread.lines()))


def _column(log: Log, source: str | None) -> str | None:
    """Return the column of a log that a key of the mapping names; None: it has none."""
    return None if source is None else find_column(source.removeprefix(SUM), log.columns)


class _Unread:
    """What cells of a log could not be read."""

    def __init__(self) -> None:
        self.cells: dict[str, list[tuple[Any, float]]] = {}
        self.not_finite: list[float] = []
        self.without_step = 0

    def number(self, key: str, cell: Any, step: float) -> float:
        """Return a cell as a finite number; NaN if it is none, which is remembered."""
        number = READERS[key](cell)
        if cell is None or math.isfinite(number):
            return number
        if _is_no_number(cell):
            self.cells.setdefault(key, []).append((cell, step))
        elif key == "score":
            self.not_finite.append(step)
        return math.nan

    def lines(self) -> Iterator[str]:
        """Say what could not be read, with an example of each kind."""
        for key, cells in self.cells.items():
            cell, step = cells[0]
            place = "" if math.isnan(step) else f", at step {step:g}"
            text = str(cell)[:LONGEST_CELL]
            yield f"{len(cells)} values of {key} cannot be read, such as {text!r}{place}"
        if self.not_finite:
            yield f"{len(self.not_finite)} scores are not finite (step {self.not_finite[0]:g})"
        if self.without_step:
            yield f"{self.without_step} scores have no step"


def _lines(
    log: Log,
    mapping: Mapping,
    columns: dict[str, str | None],
    tellers: Sequence[str],
    unread: _Unread,
) -> Iterator[Line]:
    """Yield the lines of a log that have a step."""
    step_names = _step_names(log, mapping.step)
    for row in log.rows:
        step_cell = next((row[name] for name in step_names if row.get(name) is not None), None)
        step = unread.number("step", step_cell, math.nan)
        numbers = {}
        for key, column in columns.items():
            cell = None if column is None else row.get(column)
            numbers[key] = unread.number(key, cell, step)
        if not math.isnan(step):
            teller = tuple(row.get(name) for name in tellers)
            yield Line(step, numbers, frozenset(row), teller, row)
        elif not math.isnan(numbers["score"]):
            unread.without_step += 1


def _is_no_number(cell: Any) -> bool:
    """Whether a cell is a text other than nan and inf, or another thing that is no number."""
    if isinstance(cell, str):
        return cell.strip().lower().lstrip("+-") not in ("nan", "inf", "infinity")
    return not isinstance(cell, float)


def _step_names(log: Log, names: Sequence[str]) -> list[str]:
    """Return the columns that have the step of this log, the preferred one first.

    Another column than the first is taken of rows that lack it, unless a row has both and they
    differ: W&B's own `_step` counts calls, and often is another number.
    """
    found = [find_column(name, log.columns) for name in names]
    present = [name for name in found if name is not None]
    if len(present) < 2:
        return present
    first = present[0]
    equal = [first]
    for other in present[1:]:
        both = [(row[first], row[other]) for row in log.rows
                if row.get(first) is not None and row.get(other) is not None]  # fmt: skip
        if all(values.step(one) == values.step(two) for one, two in both):
            equal.append(other)
    return equal


def _tellers(log: Log, chosen: Collection[str | None]) -> list[str]:
    """Return the columns of a log that may tell lines of a step apart: ranks, test sets."""
    found = []
    texts: dict[str, set[str]] = {}
    for row in log.rows:
        for column, cell in row.items():
            if isinstance(cell, str):
                texts.setdefault(column, set()).add(cell)
    for column in sorted(log.columns - {*chosen}):
        kinds = texts.get(column, set())
        named = column.lower() in (*RANKS, *REPEATS)
        are_texts = 1 < len(kinds) <= MOST_KINDS and all(
            math.isnan(values.seconds(kind)) and _is_no_number(kind) for kind in kinds
        )
        if named or are_texts:
            found.append(column)
    return sorted(found, key=lambda name: name.lower() not in RANKS)
