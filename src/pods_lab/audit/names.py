"""Names of runs that tell them apart, and texts of a stranger's file that no terminal obeys."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pods_lab.audit.formats import Log, Row, one_line, run_path

LONGEST_PATH = 4096  # letters that Linux takes
TIMESTAMP = re.compile(r"v\d+-\d{8}-\d{6}|\d{8}[-_]\d{6}")  # a folder that a trainer made


def printable_log(log: Log) -> Log:
    """Show control characters of a log as text, so that no terminal obeys them."""
    if not all(column.isprintable() for column in log.columns):
        rows = [{one_line(name): cell for name, cell in row.items()} for row in log.rows]
        log = replace(log, rows=rows)
    for row in log.rows:
        _make_printable(row)
    return replace(
        log,
        path=Path(one_line(log.path, LONGEST_PATH)),
        config=_printable_config(log.config),
        machine=one_line(log.machine),
    )


def _make_printable(row: Row) -> None:
    for name, cell in row.items():
        if isinstance(cell, str) and not cell.isprintable():
            row[name] = one_line(cell)


def _printable_config(config: Row) -> Row:
    printable: Row = {}
    for key, value in config.items():
        printable[one_line(key)] = one_line(value) if isinstance(value, str) else value
    return printable


def named(logs: list[Log]) -> list[Log]:
    """Name runs without a name by what tells their paths apart, and make all names unique."""
    nameless = [log for log in logs if not log.name]
    paths = _short_paths([run_path(log.path) for log in nameless])
    for log, path in zip(nameless, paths, strict=True):
        log.name = path + log.ending

    counts: Counter[str] = Counter()
    for log in logs:
        name = one_line(log.name)
        counts[name] += 1
        log.name = name if counts[name] == 1 else f"{name} #{counts[name]}"
    return logs


def _short_paths(paths: Sequence[str]) -> list[str]:
    """Return the paths from the folder above all of them, without timestamps if none is needed."""
    if not paths:
        return []
    absolute = [os.path.abspath(path) for path in paths]
    above = os.path.commonpath([os.path.dirname(path) for path in absolute])
    relative = [os.path.relpath(path, above) for path in absolute]
    short = [_without_timestamps(path) for path in relative]
    are_unique = len(set(short)) == len(set(relative))
    return short if are_unique else relative


def _without_timestamps(path: str) -> str:
    parts = [part for part in path.split("/") if not TIMESTAMP.fullmatch(part)]
    return "/".join(parts) or path
