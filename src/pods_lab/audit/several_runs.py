"""Split the rows of a file that holds several runs, by the columns that tell the runs apart."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pods_lab.audit.formats import Log, Row, run_path

RUN_COLUMNS = ("run", "run_name", "run_id")
METHOD_COLUMNS = ("method", "arm", "algorithm", "algo")
SEED_COLUMNS = ("seed", "rng_seed", "random_seed")
LIKE_A_METHOD = re.compile(
    r"(?i)(?:.*[^a-z])?(?:method|algorithm|algo|arm|variant|approach|trainer|agent|system|condition)"
    r"(?:[^a-z].*)?"
)
LIKE_A_SEED = re.compile(
    r"(?i)(?:.*[^a-z])?(?:seed|rng|init|initiali[sz]ation|replicate|repetition|trial)(?:[^a-z].*)?"
)
"""Names that count if no usual one is there and no other column has such a name."""

Values = tuple[str, ...]
"""What the columns that tell runs apart hold in a row; an empty text if a row lacks a column."""


def by_run(log: Log, chosen: Iterable[str] = ()) -> Iterator[Log]:
    """Split rows of several runs by the columns that say of which run a row is.

    These are a column `run`, those of method and seed, and the `chosen` columns of a mapping. A row
    that has none of their values is of the only run there is, or else of none.
    """
    guessed = _guessed_columns(log)
    columns = _telling_columns(log, chosen, guessed)
    if not columns:
        yield log
        return

    rows_of = _rows_by_values(log, columns)
    first_values = {values[0] for values in rows_of}
    names_are_unique = len(first_values) == len(rows_of)
    has_names = columns[0].lower() in RUN_COLUMNS and names_are_unique
    for values, rows in rows_of.items():
        labels = _labels(columns, values, guessed)
        run = replace(log, rows=rows, config=log.config | labels)
        if len(rows_of) > 1:
            _name(run, columns, values)
        if has_names:  # which are no seeds
            run.name = values[0]
        yield run


def _name(run: Log, columns: Sequence[str], values: Values) -> None:
    """Tell one of several runs of a file from the others, by what its columns hold."""
    run.key = "\0".join([run_path(run.path), *values])
    if all(column.lower() in SEED_COLUMNS for column in columns):
        run.ending = f"-seed{values[0]}"
    else:
        run.name = " ".join(value for value in values if value)


def _telling_columns(log: Log, chosen: Iterable[str], guessed: dict[str, str]) -> list[str]:
    """Return the columns that say of which run a row is, the one of the run's name first."""
    by_lower_case = {column.lower(): column for column in sorted(log.columns)}
    columns = []
    for usual_name in RUN_COLUMNS + METHOD_COLUMNS + SEED_COLUMNS:
        if usual_name in by_lower_case:
            columns.append(by_lower_case[usual_name])
    for name in chosen:
        if name in log.columns and name not in columns:
            columns.append(name)
    if columns:
        return columns

    columns = list(guessed.values())
    log.notes += [f"{name!r} says of which run a row is" for name in columns]
    return columns


def _guessed_columns(log: Log) -> dict[str, str]:
    """Return the columns that must be method and seed by unusual names, by these two words.

    Of a table with the columns `Approach` (texts) and `Init #` they are method and seed.
    """
    guessed = {}
    methods = [name for name in _columns_like(LIKE_A_METHOD, log) if _has_texts(log, name)]
    seeds = _columns_like(LIKE_A_SEED, log)
    if len(methods) == 1:
        guessed["method"] = methods[0]
    if len(seeds) == 1 and seeds != methods:
        guessed["seed"] = seeds[0]
    return guessed


def _columns_like(pattern: re.Pattern[str], log: Log) -> list[str]:
    return [name for name in sorted(log.columns) if pattern.fullmatch(name)]


def _has_texts(log: Log, column: str) -> bool:
    return any(isinstance(cell, str) for cell in log.cells(column))


def _rows_by_values(log: Log, columns: Sequence[str]) -> dict[Values, list[Row]]:
    """Return the rows of each run; rows of no run are left out, which is a fault of the log."""
    rows_of: dict[Values, list[Row]] = {}
    for row in log.rows:
        cells = [row.get(column) for column in columns]
        values = tuple(["" if cell is None else str(cell).strip() for cell in cells])
        rows_of.setdefault(values, []).append(row)

    nameless = ("",) * len(columns)
    if nameless not in rows_of or len(rows_of) == 1:
        return rows_of

    lost = rows_of.pop(nameless)
    if len(rows_of) == 1:
        [only_run] = rows_of
        return {only_run: log.rows}
    named = " and ".join(columns)
    log.faults.append(f"{len(lost)} rows have no {named}, so no run, and are left out")
    return rows_of


def _labels(columns: Sequence[str], values: Values, guessed: dict[str, str]) -> Row:
    """Return method and seed of a run, under the names that a config would have for them."""
    by_name = {}
    for column, value in zip(columns, values, strict=True):
        if value:
            by_name[column.lower()] = value
    for key, column in guessed.items():
        value = by_name.get(column.lower(), "")
        if value:
            by_name.setdefault(key, value)

    labels = {key: by_name[key] for key in METHOD_COLUMNS + SEED_COLUMNS if key in by_name}
    for key in SEED_COLUMNS:
        if key in labels:
            labels.setdefault("seed", labels[key])
    return labels
