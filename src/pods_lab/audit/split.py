"""Split tables of several runs by the columns that a mapping names."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pods_lab.audit.formats import Log, Row
from pods_lab.audit.mapping import Given, find_column

COLUMN = "column:"
SPLITTING = ("run", "method", "seed")  # keys of a mapping that tell runs apart


def split(logs: Sequence[Log], given: Given) -> list[Log]:
    """Make a log of each run in tables whose columns `given` names for run, method or seed.

    Without a column that names the run, a run is a method and seed. A ValueError says that `run`
    is no column, or that no table has it.
    """
    sources = {key: given[key] for key in SPLITTING if given.get(key) is not None}
    run = sources.get("run", COLUMN)
    if not run.startswith(COLUMN):
        raise ValueError(f"run={run}: must be column:NAME")
    names = [source.removeprefix(COLUMN) for source in sources.values()
             if source.startswith(COLUMN)]  # fmt: skip
    if not names:
        return list(logs)
    if "run" in sources and all(find_column(names[0], log.columns) is None for log in logs):
        raise ValueError(f"run={run}: no log has this column")
    parts = [part for log in logs for part in _parts(log, names)]
    if "run" in sources:
        return list(_joined(parts))
    _make_unique(parts)
    return parts


def _parts(log: Log, names: Sequence[str]) -> Iterator[Log]:
    """Yield the runs of one log, by the values of those of the columns that it has."""
    columns = [column for name in names if (column := find_column(name, log.columns)) is not None]
    by_run: dict[tuple[Any, ...], list[Row]] = {}
    unnamed = 0
    for row in log.rows if columns else ():
        key = tuple(row.get(column) for column in columns)
        unnamed += None in key
        if None not in key:
            by_run.setdefault(key, []).append(row)
    if len(by_run) < 2:
        yield log  # all rows are of one run, also those without its name
        return
    faults = list(log.faults)
    if unnamed:
        faults.append(f"{unnamed} rows have no {' or '.join(columns)}, and are left out")
    for key, rows in by_run.items():
        name = " ".join(map(str, key))
        config = log.config | dict(zip(columns, key, strict=True))
        yield Log(name, log.path, rows, config, log.machine, faults)
        faults = []  # each is said once


def _joined(parts: Sequence[Log]) -> Iterator[Log]:
    """Put together what several tables say of a run of one name."""
    by_name: dict[str, list[Log]] = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    for several in by_name.values():
        rows = [row for part in several for row in part.rows]
        faults = [fault for part in several for fault in part.faults]
        yield replace(several[0], rows=rows, faults=faults)


def _make_unique(logs: Sequence[Log]) -> None:
    """Give runs of one name numbers, such as those of a method and seed in several files."""
    seen: Counter[str] = Counter()
    for log in logs:
        seen[log.name] += 1
        if seen[log.name] > 1:
            log.name += f" #{seen[log.name]}"
