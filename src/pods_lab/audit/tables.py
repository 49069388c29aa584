"""Read CSV: a row for each step or run, or columns for each run, as W&B exports a chart.

Spreadsheets and libraries differ in what lies between cells, in the decimal mark, in blanks
around names, and in comments. What a file uses is told from its header and its numbers.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pods_lab.audit.formats import LIMIT, Log, Row, content
from pods_lab.audit.values import DECIMAL_COMMA, THOUSANDS, number

MARKS = ",;\t|"  # what lies between cells; of two that make as many columns the first counts
LONGEST_HEADER = 10**7  # characters
TRIED = 100  # lines that tell whether blanks lie between cells
EXCEL = re.compile(r"sep=(.)\s*")  # first line of a file, which Excel obeys and does not show
DECIMAL_POINT = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?", re.IGNORECASE)
TENSORBOARD = ["Wall time", "Step", "Value"]  # a scalar that was downloaded from its page
DOWNLOAD = re.compile(r"run-(.+)-tag-(.+)\.csv")


def table(path: Path) -> Iterator[Log]:
    """Read a CSV file.

    Raises:
        ValueError: two columns have one name, columns are means of several runs, or the header is
            longer than that of any table.
    """
    mark, lines = _layout(io.StringIO(_text(path), newline="").readlines())
    names, rows, faults = _rows(_cells(lines, mark))
    if mark != ",":
        _read_decimal_commas(rows)
    charted = _charted(names)
    if charted:
        _check_single_runs(charted, rows)
        yield from _chart(path, names[0], charted, rows, faults)
        return
    log = Log("", path, rows, faults=faults)
    download = DOWNLOAD.fullmatch(path.name)
    if names == TENSORBOARD and download:
        log.name, tag = download.groups()
        log.key = f"{path.parent}\0{log.name}"
        log.rows = [{tag if key == "Value" else key: row[key] for key in row} for row in rows]
    yield log


def _text(path: Path) -> str:
    data = content(path)
    try:
        return data.decode()
    except UnicodeDecodeError:  # of older spreadsheets
        return data.decode("latin-1")


def _layout(lines: list[str]) -> tuple[str, list[str]]:
    """Return what lies between cells, and the lines from the header on.

    The header may itself be a comment, as numpy writes it above lines of numbers.
    """
    chosen = EXCEL.fullmatch(lines[0]) if lines else None
    start = 1 if chosen else 0
    comment = ""
    while start < len(lines) and lines[start].lstrip()[:1] in ("", "#"):
        comment = lines[start].strip() or comment
        start += 1
    lines = lines[start:]
    if not lines:
        return ",", []
    if len(lines[0]) > LONGEST_HEADER:
        raise ValueError(f"its header has more than {LONGEST_HEADER:,} characters")
    mark = chosen[1] if chosen else _mark(lines)
    first = next(_cells(lines[:1], mark), [])
    if comment and not any(math.isnan(number(cell)) for cell in first):
        lines = [comment.lstrip("# ") + "\n", *lines]
    return mark, lines


def _mark(lines: Sequence[str]) -> str:
    """Return what lies between the cells of a header: what makes most columns."""

    def count(line: str, mark: str) -> int:
        return len(next(_cells([line.strip()], mark), []))

    best = max(MARKS, key=lambda mark: count(lines[0], mark))
    columns = count(lines[0], best)
    if columns == 1:
        by_blanks = {count(line, " ") for line in lines[:TRIED] if line.strip()}
        return " " if by_blanks != {1} and len(by_blanks) == 1 else best
    return best


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


def _rows(lines: Iterator[list[str]]) -> tuple[list[str], list[Row], list[str]]:
    """Return the names of the columns, the rows, and what was left out.

    A line that has more cells than the header is left out. A header that comes again, since a run
    was resumed, is no row.
    """
    names = next(lines, [])
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        raise ValueError("two columns have one name")
    rows: list[Row] = []
    lost = 0
    for cells in lines:
        if any(cells[len(names) :]):
            lost += 1
        elif cells != names:
            pairs = zip(names, cells, strict=False)
            rows.append({name: cell for name, cell in pairs if name and cell})
    faults = [f"{lost} rows have more cells than the header, and are left out"] if lost else []
    return names, rows, faults


def _read_decimal_commas(rows: Sequence[Row]) -> None:
    """Turn texts with commas into numbers, if the comma is the file's decimal mark."""
    cells = [cell for row in rows for cell in row.values() if "," in cell or "." in cell]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    certain = any(not THOUSANDS["."].fullmatch(cell) for cell in commas)
    if not certain and any(DECIMAL_POINT.fullmatch(cell) for cell in cells):
        return
    for row in rows:
        for name, cell in row.items():
            value = number(cell, decimal=",") if "," in cell or "." in cell else math.nan
            if not math.isnan(value):
                row[name] = value


def _charted(names: Sequence[str]) -> list[str]:
    """Return the columns of a chart of W&B, `RUN - METRIC`; none: the table is no chart."""
    charted = [name.removesuffix("__MIN") for name in names if name.endswith("__MIN")]
    others = list(names[1:])
    if not charted and others and all(" - " in name for name in others):
        return others
    return charted


def _check_single_runs(charted: Sequence[str], rows: Sequence[Row]) -> None:
    """Raise a ValueError if a column is a mean: it has its least and largest beside it."""
    for name in charted:
        for row in rows:
            low, high = (number(row.get(f"{name}__{end}")) for end in ("MIN", "MAX"))
            if low < high and not math.isclose(low, high, rel_tol=1e-9):
                run = name.rpartition(" - ")[0]
                raise ValueError(
                    f"{run} is a mean of several runs or steps (its MIN and MAX differ): "
                    "export runs that are not grouped, with all points"
                )


def _chart(
    path: Path, x: str, charted: Sequence[str], rows: Sequence[Row], faults: list[str]
) -> Iterator[Log]:
    """Make a log for each run of a chart; the column x is that of all."""
    metrics: dict[str, dict[str, str]] = {}
    for name in charted:
        run, _, metric = name.rpartition(" - ")
        metrics.setdefault(run, {})[name] = metric
    for run, of_run in metrics.items():
        points = []
        for row in rows:
            known = {of_run[name]: row[name] for name in of_run if name in row}
            if known and x in row:
                known[x] = row[x]
            if known:
                points.append(known)
        yield Log(run, path, points, faults=faults, key=f"{path}\0{run}")
