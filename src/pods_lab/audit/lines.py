"""The lines of a log as numbers: step, score, seconds, tokens, and what could not be read.

What the mapping chose and a log cannot give is said, and no other column takes its place.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pods_lab.audit import values
from pods_lab.audit.formats import Log, Row
from pods_lab.audit.mapping import Mapping, column_of, find_column

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
FAR_APART = 1.5  # ratio of the last steps of two columns, above which they may count other things
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
    step_columns: list[str]
    """The columns that the steps are of, the preferred one first."""


def read_lines(log: Log, mapping: Mapping) -> Lines:
    """Read the lines of a log as the mapping says."""
    columns = {}
    for key in NUMBERS:
        name = column_of(getattr(mapping, key))
        columns[key] = find_column(name, log.columns) if name else None

    tellers = _tellers(log, columns.values())
    unread = _Unread()
    step_columns = _step_columns(log, mapping.step)
    lines = list(_lines(log, step_columns, columns, tellers, unread))
    return Lines(lines, tellers, unread.messages(), step_columns)


@dataclass(frozen=True)
class _Cell:
    """A cell that could not be read, and the step of its line."""

    content: Any
    step: float


class _Unread:
    """What cells of a log could not be read."""

    def __init__(self) -> None:
        self.cells: dict[str, list[_Cell]] = {}
        self.not_finite: list[float] = []
        self.without_step = 0

    def number(self, key: str, content: Any, step: float) -> float:
        """Return a cell as a finite number; NaN if it is none, which is remembered."""
        number = READERS[key](content)
        if content is None or math.isfinite(number):
            return number
        if not _is_number(content):
            self.cells.setdefault(key, []).append(_Cell(content, step))
        elif key == "score":
            self.not_finite.append(step)
        return math.nan

    def messages(self) -> list[str]:
        """Say what could not be read, with an example of each kind."""
        messages = []
        for key, cells in self.cells.items():
            example = cells[0]
            place = "" if math.isnan(example.step) else f", at step {example.step:g}"
            text = str(example.content)[:LONGEST_CELL]
            messages.append(f"{len(cells)} values of {key} cannot be read, such as {text!r}{place}")
        if self.not_finite:
            first = self.not_finite[0]
            messages.append(f"{len(self.not_finite)} scores are not finite (step {first:g})")
        if self.without_step:
            messages.append(f"{self.without_step} scores have no step")
        return messages


def _lines(
    log: Log,
    step_columns: Sequence[str],
    columns: dict[str, str | None],
    tellers: Sequence[str],
    unread: _Unread,
) -> Iterator[Line]:
    """Yield the lines of a log that have a step."""
    for row in log.rows:
        step_cell = _first_cell(row, step_columns)
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


def _first_cell(row: Row, columns: Sequence[str]) -> Any:
    """Return what the first of the columns holds that a row has; None: it has none of them."""
    for column in columns:
        if row.get(column) is not None:
            return row[column]
    return None


def _is_number(cell: Any) -> bool:
    """Return whether a cell is a number, which includes nan and inf, also as a text."""
    if isinstance(cell, str):
        return cell.strip().lower().lstrip("+-") in ("nan", "inf", "infinity")
    return isinstance(cell, float)


def _step_columns(log: Log, names: Sequence[str]) -> list[str]:
    """Return the columns that have the step of this log, the preferred one first.

    Another column than the first is taken of rows that lack it, unless a row has both and they
    differ: W&B's own `_step` counts calls, and often is another number.
    """
    present = []
    for name in names:
        column = find_column(name, log.columns)
        if column is not None:
            present.append(column)
    return [column for column in present if _agree(log, present[0], column)]


def mixed_step_columns(log: Log, columns: Sequence[str]) -> str:
    """Describe two columns of steps that never stand in one row and end far apart.

    They may count different things. Without such columns the text is empty.
    """
    first, *others = columns
    for other in others:
        if any(row.get(first) is not None and row.get(other) is not None for row in log.rows):
            continue
        ends = [_last_step(log, column) for column in (first, other)]
        if max(ends) > FAR_APART * min(ends):
            return f"{first}, to {ends[0]:g}, and {other}, to {ends[1]:g}"
    return ""


def _last_step(log: Log, column: str) -> float:
    steps = [values.step(cell) for cell in log.cells(column)]
    return max((step for step in steps if not math.isnan(step)), default=0.0)


def _agree(log: Log, first: str, second: str) -> bool:
    """Return whether two columns have the same step wherever a row has both."""
    if first == second:
        return True
    for row in log.rows:
        if row.get(first) is None or row.get(second) is None:
            continue
        if values.step(row[first]) != values.step(row[second]):
            return False
    return True


def _tellers(log: Log, chosen: Collection[str | None]) -> list[str]:
    """Return the columns of a log that may tell lines of a step apart: ranks, then test sets."""
    ranks = []
    test_sets = []
    for column in sorted(log.columns):
        if column in chosen:
            continue
        if column.lower() in RANKS:
            ranks.append(column)
        elif column.lower() in REPEATS or _has_kinds(log, column):
            test_sets.append(column)
    return ranks + test_sets


def _has_kinds(log: Log, column: str) -> bool:
    """Return whether the texts in a column are a few words, and neither numbers nor times."""
    texts = {cell for cell in log.cells(column) if isinstance(cell, str)}
    if not 1 < len(texts) <= MOST_KINDS:
        return False
    return not any(_is_number(text) or math.isfinite(values.seconds(text)) for text in texts)
