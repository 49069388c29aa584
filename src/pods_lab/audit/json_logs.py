"""Read JSON: lines of rows, lists of rows, frames of pandas, and an object per checkpoint.

Nested objects are columns whose names are joined by slashes, such as `val/gsm8k/accuracy`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pods_lab.audit.formats import Log, Row, content, flat
from pods_lab.audit.json_frames import frame_rows, is_rows

CHECKPOINT = re.compile(r".*-\d+")  # a checkpoint's name
NUMERIC = ({int}, {float}, {int, float})  # types of numbers to be averaged: no bool is one
PART_OF_A_RUN = re.compile(r"(train|training|eval|evaluation|val|valid|validation|test|dev).*")


def json_lines(path: Path) -> Iterator[Log]:
    """Read JSON lines; a file that is one JSON list or object is read as such."""
    data = content(path)
    lines = [line for line in data.splitlines() if line.strip()]
    if lines and not isinstance(_parse(lines[0]), dict):
        whole = _parse(data)
        if whole is not None:
            yield from _logs_of(whole, path)
            return

    values = [_parse(line) for line in lines]
    if len(values) == 1 and _holds_rows(values[0]):
        yield from _logs_of(values[0], path)
    else:
        yield _log(values, path)


def json_file(path: Path) -> Iterator[Log]:
    """Read one JSON value: rows, a frame, checkpoints, or an object with one of them."""
    whole = _parse(content(path))
    if whole is None:
        yield from json_lines(path)
    else:
        yield from _logs_of(whole, path)


def _logs_of(whole: Any, path: Path) -> Iterator[Log]:
    """Make the logs of a file that is one JSON value."""
    if isinstance(whole, list):
        yield _log(whole, path)
        return
    if not isinstance(whole, dict):
        raise ValueError("is no list and no object")
    if whole and all(CHECKPOINT.fullmatch(name) for name in whole):
        yield Log("", path, checkpoints(whole))
        return
    frame = frame_rows(whole)
    if frame:
        yield _log(frame, path)
        return
    yield from _logs_of_lists(whole, path)


def _logs_of_lists(whole: Row, path: Path) -> Iterator[Log]:
    """Make a log of each list of rows in an object; its key names the run if there are several."""
    lists = {key: value for key, value in whole.items() if is_rows(value)}
    if len(lists) == 1:
        [rows] = lists.values()
        yield _log(rows, path)
        return
    if lists and all(PART_OF_A_RUN.fullmatch(key) for key in lists):
        names = ", ".join(lists)
        raise ValueError(f"has several lists of one run ({names}): write JSON lines with all")
    for key, rows in lists.items():
        log = _log(rows, path)
        log.name = key
        log.key = f"{path}\0{key}"
        yield log


def _holds_rows(value: Any) -> bool:
    """Return whether an object is a frame, or has nothing but lists and objects: it is no row."""
    if not isinstance(value, dict):
        return False
    if frame_rows(value):
        return True
    return all(isinstance(inner, dict | list) for inner in value.values())


def _log(values: Sequence[Any], path: Path) -> Log:
    """Make a log of what should be rows."""
    rows = [_row(value) for value in values if isinstance(value, dict)]
    log = Log("", path, rows)
    bad = len(values) - len(rows)
    if bad:
        log.faults.append(f"{bad} lines are cut off or no JSON objects, and left out")
    return log


def _row(record: Row) -> Row:
    """Join nested keys; verl's file logger has the metrics in `data`, which is no part of them."""
    metrics = record.get("data")
    if isinstance(metrics, dict):
        record = {key: value for key, value in record.items() if key != "data"} | metrics
    return flat(record, "/")


def checkpoints(content: Row) -> list[Row]:
    """Return a row per object with a name such as checkpoint-100, in order of steps.

    It has the object's numbers, and the mean of each list of them, such as repeats.
    """
    rows = []
    for name, block in content.items():
        row: Row = {"step": int(name.rpartition("-")[2])}
        for key, value in flat(block, "/").items():
            repeats = value if isinstance(value, list) else [value]
            if {type(repeat) for repeat in repeats} in NUMERIC:
                row[key] = fmean(repeats)
        rows.append(row)
    return sorted(rows, key=lambda row: float(row["step"]))


def _parse(text: bytes) -> Any:
    """Parse JSON, which may have NaN as Python writes it; None: it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
