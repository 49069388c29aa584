"""A wide W&B export: time in column 0, and for each run its `_step` and one metric."""

import csv
import math
import re
from collections import defaultdict
from pathlib import Path

Point = tuple[float, int, float]
"""Seconds, W&B's step, the value."""
RUN = re.compile(r"\w+-s(?P<seed>\d+)-p(?P<prompts>[1-9]\d*)-n(?P<n>[1-9]\d*)-m(?P<m>[1-9]\d*)"
                 r"-ga(?P<groups>[1-9]\d*)")  # fmt: skip
COLUMN = re.compile(r"data/(?P<run>.+?) - (?P<key>.+?)(?P<twin>__MIN|__MAX)?")


def read_export(path: Path, key: str) -> dict[str, list[Point] | str]:
    """Read one export: points of each run, in the order of the file, or what is wrong with it.

    Args:
        path: of the CSV file. Column 0 is eval/time; a row has values of one run.
        key: the metric whose columns the file has beside `_step`; `__MIN` and `__MAX` repeat it.

    Raises:
        ValueError: it is no such file; the message names it.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *lines = list(csv.reader(file, strict=True))
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path.name} is no W&B export: {error}") from error
    columns = _header(path.name, header, key)
    points: dict[str, list[Point]] = {run: [] for run in columns}
    faults: dict[str, str] = {run: f"has no {key}" for run in columns if len(columns[run]) < 2}
    for number, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise ValueError(f"{path.name} line {number} has {len(line)} cells of {len(header)}")
        there = [run for run, of in columns.items() if any(line[i] for i in of.values())]
        if not there:
            raise ValueError(f"{path.name} line {number} has values of no run")
        for run in there:
            cells = [line[0], *(line[i] for i in columns[run].values())]
            try:
                points[run].append(_point(cells))
            except ValueError:
                faults.setdefault(run, f"line {number} has no numbers: {', '.join(cells)}")
            if len(there) > 1:
                faults.setdefault(run, f"line {number} has values of {len(there)} runs")
    return {run: faults.get(run, points[run]) for run in columns}


def _header(name: str, header: list[str], key: str) -> dict[str, dict[str, int]]:
    """Where `_step` and the value of each run are, in this order."""
    if header[:1] != ["eval/time"]:
        raise ValueError(f"{name} is no W&B export over eval/time")
    columns: dict[str, dict[str, int]] = defaultdict(dict)
    for index, title in enumerate(header[1:], 1):
        match = COLUMN.fullmatch(title)
        if not match or not RUN.fullmatch(match["run"]) or match["key"] not in ("_step", key):
            raise ValueError(f"{name} has a column {title!r}, not _step or {key} of a run")
        if match["twin"]:
            continue
        if match["key"] in columns[match["run"]]:
            raise ValueError(f"{name} has the column {title!r} twice")
        columns[match["run"]][match["key"]] = index
    return {run: {k: of[k] for k in ("_step", key) if k in of} for run, of in columns.items()}


def _point(cells: list[str]) -> Point:
    seconds, step, value = cells
    found = float(seconds), int(step), float(value)
    if not all(map(math.isfinite, found)):
        raise ValueError(cells)
    return found
