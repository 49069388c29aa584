"""Read JSON: lines of rows, lists of rows, pandas' frames, and an object per checkpoint.

Nested objects are columns whose names are joined by slashes, such as `val/gsm8k/accuracy`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pods_lab.audit.formats import Log, Row, content, flat

CHECKPOINT = re.compile(r".*-\d+")  # a checkpoint's name
NUMBERED = re.compile(r"\d+(\.\d+)?")  # an index of pandas that is no name
PART_OF_A_RUN = re.compile(r"(train|training|eval|evaluation|val|valid|validation|test|dev).*")


def json_lines(path: Path) -> Iterator[Log]:
    """Read JSON lines; a file that is one JSON list or object is read as such."""
    data = content(path)
    lines = [line for line in data.splitlines() if line.strip()]
    if lines and not isinstance(_parse(lines[0]), dict):
        whole = _parse(data)
        if whole is not None:
            yield from _of_json(whole, path)
            return
    found = [_parse(line) for line in lines]
    if len(found) == 1 and _holds_rows(found[0]):
        yield from _of_json(found[0], path)
    else:
        yield _log(found, path)


def json_file(path: Path) -> Iterator[Log]:
    """Read one JSON value: rows, a frame, checkpoints, or an object with one of them."""
    whole = _parse(content(path))
    if whole is None:
        yield from json_lines(path)
    else:
        yield from _of_json(whole, path)


def _of_json(whole: Any, path: Path) -> Iterator[Log]:
    if isinstance(whole, list):
        yield _log(whole, path)
        return
    if not isinstance(whole, dict):
        raise ValueError("is no list and no object")
    if whole and all(map(CHECKPOINT.fullmatch, whole)):
        yield Log("", path, checkpoints(whole))
        return
    frame = _frame(whole)
    if frame:
        yield _log(frame, path)
        return
    lists = {key: rows for key, rows in whole.items() if _is_rows(rows)}
    several = len(lists) > 1
    if several and all(map(PART_OF_A_RUN.fullmatch, lists)):
        names = ", ".join(lists)
        raise ValueError(f"has several lists of one run ({names}): write JSON lines with all")
    for key, rows in lists.items():
        log = _log(rows, path)
        if several:
            log.name = key
            log.key = f"{path}\0{key}"
        yield log


def _holds_rows(value: Any) -> bool:
    """Return whether an object is a frame, or has nothing but lists and objects: it is no row."""
    if not isinstance(value, dict):
        return False
    return bool(_frame(value)) or all(isinstance(inner, dict | list) for inner in value.values())


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def _log(found: Sequence[Any], path: Path) -> Log:
    """Make a log of what should be rows."""
    rows = [_row(row) for row in found if isinstance(row, dict)]
    bad = len(found) - len(rows)
    faults = [f"{bad} lines are cut off or no JSON objects, and left out"] if bad else []
    return Log("", path, rows, faults=faults)


def _row(record: Row) -> Row:
    """Join nested keys; verl's file logger has the metrics in `data`, which is no part of them."""
    data = record.get("data")
    if isinstance(data, dict):
        record = {key: value for key, value in record.items() if key != "data"} | data
    return flat(record, "/")


def _frame(value: Any) -> list[Row]:
    """Return the rows of a frame as pandas' `to_json` or `to_dict` writes it; none: it is none.

    Its forms are `split` (columns, index, data), a list for each column, and dictionaries in
    dictionaries, by columns and then rows or the other way round. Rows have numbers there.
    """
    if not isinstance(value, dict) or not value:
        return []
    names = value.get("columns")
    data = value.get("data")
    if isinstance(names, list) and isinstance(data, list):
        return _with_index([_named(names, cells) for cells in data], value.get("index", []))
    if all(isinstance(cells, list) for cells in value.values()):
        return _from_lists(value)
    if all(isinstance(cells, dict) for cells in value.values()):
        return _from_dictionaries(value)
    return []


def _from_lists(columns: dict[str, list[Any]]) -> list[Row]:
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) != 1 or any(_is_rows(cells) for cells in columns.values()):
        return []
    return [_named(list(columns), cells) for cells in zip(*columns.values(), strict=True)]


def _from_dictionaries(nested: dict[str, Row]) -> list[Row]:
    if all(map(NUMBERED.fullmatch, nested)):
        return _with_index(list(nested.values()), list(nested))
    index = list(dict.fromkeys(key for cells in nested.values() for key in cells))
    if not all(map(NUMBERED.fullmatch, index)):
        return []
    rows: dict[str, Row] = {key: {} for key in index}
    for name, cells in nested.items():
        for key, cell in cells.items():
            rows[key][name] = cell
    return _with_index(list(rows.values()), index)


def _named(names: Sequence[str], cells: Any) -> Row:
    return dict(zip(map(str, names), cells, strict=False))


def _with_index(rows: list[Row], index: Sequence[Any]) -> list[Row]:
    """Give rows a column `index` if it does more than count them: it may be the step."""
    counts = [str(place) for place in range(len(rows))]
    if len(index) != len(rows) or [str(key) for key in index] == counts:
        return rows
    return [row | {"index": key} for row, key in zip(rows, index, strict=True)]


def checkpoints(content: Row) -> list[Row]:
    """Return a row per object with a name such as checkpoint-100, in order of steps.

    It has the object's numbers, and the mean of each list of them, such as repeats.
    """
    rows = []
    for name, block in content.items():
        row: Row = {"step": int(name.rpartition("-")[2])}
        for key, value in flat(block, "/").items():
            numbers = value if isinstance(value, list) else [value]
            if numbers and all(type(number) in (int, float) for number in numbers):
                row[key] = fmean(numbers)
        rows.append(row)
    return sorted(rows, key=lambda row: float(row["step"]))


def _parse(text: bytes) -> Any:
    """Parse JSON, which may have NaN as Python writes it; None: it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
