"""Read CSV: a row for each step or run, or columns for each run, as W&B exports a chart.

Spreadsheets and libraries differ in what lies between cells, in the decimal mark, in blanks
around names, and in comments. What a file uses is told from its header and its numbers.
"""

import csv
import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pods_lab.audit.formats import LIMIT, Log, Row, content
from pods_lab.audit.values import DECIMAL_COMMA, THOUSANDS, number

MARKS = ",;\t|"  # what lies between cells; of two that make as many columns the first counts
LONGEST_HEADER = 10**7  # characters
TRIED = 100  # lines that tell whether blanks lie between cells
EXCEL = re.compile(r"sep=(.)\s*")  # first line of a file, which Excel obeys and does not show
DECIMAL_POINT = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?", re.IGNORECASE)
MARK_OF_NUMBER = re.compile("[,.]")
TENSORBOARD = ["Wall time", "Step", "Value"]  # a scalar that was downloaded from its page
DOWNLOAD = re.compile(r"run-(?P<run>.+)-tag-(?P<tag>.+)\.csv")


@dataclass
class _Table:
    """The cells of a file."""

    names: list[str]  # of the columns; an empty one has none
    rows: list[Row]  # what is empty has no key
    faults: list[str]  # what is left out


@dataclass(frozen=True)
class _Layout:
    """What lies between the cells of a file, and its lines from the header on."""

    mark: str
    lines: list[str]


def table(path: Path) -> Iterator[Log]:
    """Read a CSV file.

    Raises:
        ValueError: two columns have one name, columns are means of several runs, or the header is
            longer than that of any table.
    """
    layout = _layout(io.StringIO(_text(path), newline="").readlines())
    sheet = _table(_cells(layout.lines, layout.mark))
    if layout.mark != ",":
        _read_decimal_commas(sheet.rows)

    charted = _charted(sheet.names)
    if charted:
        _check_single_runs(charted, sheet.rows)
        yield from _chart(path, sheet, charted)
        return

    log = Log("", path, sheet.rows, faults=sheet.faults)
    download = DOWNLOAD.fullmatch(path.name)
    if sheet.names == TENSORBOARD and download:
        log.name = download["run"]
        log.key = f"{path.parent}\0{log.name}"
        for row in log.rows:
            if "Value" in row:
                row[download["tag"]] = row.pop("Value")
    yield log


def _text(path: Path) -> str:
    data = content(path)
    try:
        return data.decode()
    except UnicodeDecodeError:  # of older spreadsheets
        return data.decode("latin-1")


def _layout(lines: list[str]) -> _Layout:
    """Tell what lies between cells, and where the header is.

    The header may itself be a comment, as numpy writes it above lines of numbers.
    """
    chosen = EXCEL.fullmatch(lines[0]) if lines else None
    if chosen:
        lines = lines[1:]
    comments = list(itertools.takewhile(_is_no_row, lines))
    lines = lines[len(comments) :]
    if not lines:
        return _Layout(",", [])
    if len(lines[0]) > LONGEST_HEADER:
        raise ValueError(f"its header has more than {LONGEST_HEADER:,} characters")

    mark = chosen[1] if chosen else _mark(lines)
    comments = [line.strip() for line in comments if line.strip()]
    if comments and _are_numbers(lines[0], mark):
        lines = [comments[-1].lstrip("# ") + "\n", *lines]
    return _Layout(mark, lines)


def _is_no_row(line: str) -> bool:
    text = line.strip()
    return not text or text.startswith("#")


def _are_numbers(line: str, mark: str) -> bool:
    return all(not math.isnan(number(cell)) for cell in _split(line, mark))


def _mark(lines: Sequence[str]) -> str:
    """Return what lies between the cells of a header: what makes most columns."""
    header = lines[0].strip()
    columns = {mark: len(_split(header, mark)) for mark in MARKS}
    best = max(MARKS, key=lambda mark: columns[mark])
    if columns[best] != 1:
        return best

    by_blanks = set()
    for line in lines[:TRIED]:
        if line.strip():
            by_blanks.add(len(_split(line.strip(), " ")))
    is_table = len(by_blanks) == 1 and by_blanks != {1}
    return " " if is_table else best


def _split(line: str, mark: str) -> list[str]:
    """Return the cells of one line; none: it is empty or a comment."""
    return next(_cells([line], mark), [])


def _cells(lines: Sequence[str], mark: str) -> Iterator[list[str]]:
    """Yield the cells of each line, without blanks around them; comments are no lines."""
    before = csv.field_size_limit(LIMIT)  # a cell may hold a whole completion
    try:
        for cells in csv.reader(lines, delimiter=mark, skipinitialspace=True):
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and not stripped[0].startswith("#"):
                yield stripped
    finally:
        csv.field_size_limit(before)


def _table(lines: Iterator[list[str]]) -> _Table:
    """Make rows of lines of cells, of which the first has the names of the columns.

    A line that has more cells than the header is left out. A header that comes again, since a run
    was resumed, is no row.
    """
    names = next(lines, [])
    _check_names(names)
    sheet = _Table(names, rows=[], faults=[])
    lost = 0
    for cells in lines:
        if cells == names:
            continue
        if any(cells[len(names) :]):
            lost += 1
            continue
        sheet.rows.append(_row(names, cells))
    if lost:
        sheet.faults.append(f"{lost} rows have more cells than the header, and are left out")
    return sheet


def _check_names(names: Sequence[str]) -> None:
    """Raise a ValueError if two columns have one name."""
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        raise ValueError("two columns have one name")


def _row(names: Sequence[str], cells: Sequence[str]) -> Row:
    """Name the cells of a line; what is empty, or has no name, is left out."""
    return {name: cell for name, cell in zip(names, cells, strict=False) if name and cell}


def _read_decimal_commas(rows: Sequence[Row]) -> None:
    """Turn texts with commas into numbers, if the comma is the file's decimal mark."""
    if not _has_decimal_commas(rows):
        return
    for row in rows:
        for name, cell in row.items():
            value = number(cell, decimal=",") if MARK_OF_NUMBER.search(cell) else math.nan
            if not math.isnan(value):
                row[name] = value


def _has_decimal_commas(rows: Sequence[Row]) -> bool:
    """Return whether a comma is certainly no mark of thousands, or no point is a decimal mark."""
    has_points = False
    for row in rows:
        for cell in row.values():
            if DECIMAL_COMMA.fullmatch(cell) and not THOUSANDS["."].fullmatch(cell):
                return True
            if DECIMAL_POINT.fullmatch(cell):
                has_points = True
    return not has_points


def _charted(names: Sequence[str]) -> list[str]:
    """Return the columns of a chart of W&B, `RUN - METRIC`; none: the table is no chart."""
    charted = [name.removesuffix("__MIN") for name in names if name.endswith("__MIN")]
    if charted:
        return charted
    without_x = list(names[1:])
    if all(" - " in name for name in without_x):
        return without_x
    return []


def _check_single_runs(charted: Sequence[str], rows: Sequence[Row]) -> None:
    """Raise a ValueError if a column is a mean: it has its least and largest beside it."""
    for name in charted:
        for row in rows:
            low = number(row.get(f"{name}__MIN"))
            high = number(row.get(f"{name}__MAX"))
            if low < high and not math.isclose(low, high, rel_tol=1e-9):
                run = name.rpartition(" - ")[0]
                raise ValueError(
                    f"{run} is a mean of several runs or steps (its MIN and MAX differ): "
                    "export runs that are not grouped, with all points"
                )


def _chart(path: Path, sheet: _Table, charted: Sequence[str]) -> Iterator[Log]:
    """Make a log for each run of a chart; the first column is the x of all."""
    x = sheet.names[0]
    metrics: dict[str, dict[str, str]] = {}  # by run, then by column
    for name in charted:
        run, _, metric = name.rpartition(" - ")
        metrics.setdefault(run, {})[name] = metric

    for run, metric_of in metrics.items():
        points = []
        for row in sheet.rows:
            point = {metric: row[name] for name, metric in metric_of.items() if name in row}
            if not point:
                continue
            if x in row:
                point[x] = row[x]
            points.append(point)
        yield Log(run, path, points, faults=sheet.faults, key=f"{path}\0{run}")
