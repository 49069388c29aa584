"""The mapping: which columns are score, step, time and tokens, and what names run, method and seed.

A mapping file `pods-audit.yaml` has the keys of `Mapping`. What it does not give is proposed by
`propose.py` from the names of columns that trainers use (`columns.yaml`).
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pods_lab.audit.formats import Log
from pods_lab.audit.units import Unit, unit_of
from pods_lab.audit.values import number

NAMES = yaml.safe_load(Path(__file__).with_name("columns.yaml").read_text())
MEAN = "mean"  # of several records of a step
COLUMN = "column:"  # before the name of a column that names run, method or seed
TIMING = "timing/*"  # the sum of these columns; see `derived.py`
SUM = "sum:"  # before the name of a column with the amount of each step, such as its seconds
LARGEST_MAP = 2**20  # bytes: a mapping has fifteen lines
SHOWN_COLUMNS = 20
LONGEST_VALUE = 40  # letters of a wrong value that a message shows

Given = dict[str, Any]
"""The keys of a mapping that a user gave, with values of their types."""


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the columns of the logs mean; texts of `ABOUT` explain the keys."""

    score: str | None = None
    unit: Unit | None = None
    step: list[str] = []
    seconds: str | None = None
    tokens: str | None = None
    several: str | None = None
    run: str | None = None
    method: str = "name"
    seed: str | None = None
    test_set: str | None = None
    questions: int | None = None
    repeats: int = 1
    baseline: str | None = None
    mean_of: list[str | list[str]] = []
    setting: list[str] = []


TYPES = {field.name: field.type for field in msgspec.structs.fields(Mapping)}
ABOUT = {
    "score": "column that is compared",
    "unit": "share (0 to 1), percent (0 to 100) or score (any other number)",
    "step": "columns of the training step; a run takes the first that it has",
    "seconds": "column of the time; sum:COLUMN adds up the seconds of the steps; null is none",
    "tokens": "column of the tokens so far, or sum:COLUMN; null is none",
    "several": "which of several records of a step: COLUMN=VALUE, or mean; null is none",
    "run": "column:NAME with the name of the run, in a table of several runs",
    "method": "name (without the seed), config:KEY, column:NAME, path:REGEX or name:REGEX",
    "seed": "likewise; null is none, and runs are not paired",
    "test_set": "config:KEY, column:NAME, path:REGEX or name:REGEX; runs of several are named",
    "questions": "size of the test set, for its own noise",
    "repeats": "answers to each question behind one score",
    "baseline": "method that the others are compared with; null is every two",
    "mean_of": "columns whose mean is the score; of lists of columns it is the mean of their means",
    "setting": "columns such as the model, in a table of final scores; each setting is a pair",
}
ALLOWED = {
    "unit": "share, percent or score",
    "step": "a text or a list of texts",
    "setting": "a text or a list of texts",
    "mean_of": "a list of columns, or of lists of columns",
    "questions": "a whole number or null",
    "repeats": "a whole number",
    "method": "a text",
}
"""What a message says that a value must be."""
ALLOWED_OTHERWISE = "a text (in quotes if it looks like a number) or null"


def read_map(path: Path) -> Given:
    """Read a mapping file, which may lack keys; a ValueError says what is wrong with it."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_MAP:
            raise ValueError(f"no file of at most {LARGEST_MAP:,} bytes")
        content = dict(yaml.safe_load(path.read_text()) or {})
    except (OSError, yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"map={path}: must be a file of keys and values: {reason}") from error
    return typed(content, f"map={path}: ")


def typed(content: dict[Any, Any], place: str = "") -> Given:
    """Check keys and types of a mapping; a ValueError names `place`, the key and its value.

    >>> typed({"step": "update", "questions": 30})
    {'step': ['update'], 'questions': 30}
    """
    given = {}
    for key, value in content.items():
        if key not in TYPES:
            raise ValueError(f"{place}{_shown(key)}: must be one of {', '.join(TYPES)}")
        is_one = key in ("step", "setting") and isinstance(value, str)
        try:
            given[key] = msgspec.convert([value] if is_one else value, TYPES[key])
        except msgspec.ValidationError as error:
            allowed = ALLOWED.get(key, ALLOWED_OTHERWISE)
            raise ValueError(f"{place}{key}={_shown(value)}: must be {allowed}") from error
    return given


def _shown(value: Any) -> str:
    """Show a value of any type: a list of lists of lists may be endless."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "keys and values"
    return str(value)[:LONGEST_VALUE]


def write_map(mapping: Mapping, columns: Collection[str], path: Path) -> None:
    """Write a mapping as a file, a line per key, and the columns that there are as comments.

    A file that is there already stays, and is a ValueError.
    """
    if path.exists():
        raise ValueError(f"{path}: exists already")
    lines = []
    for key, about in ABOUT.items():
        value = json.dumps(getattr(mapping, key), ensure_ascii=False)
        lines.append(f"{key}: {value}  # {about}")

    lines.append("# columns of the logs:")
    for name in sorted(columns):
        lines.append(f"#   {json.dumps(name, ensure_ascii=False)}")
    path.write_text("\n".join(lines) + "\n")


def check(logs: Sequence[Log], mapping: Mapping) -> Mapping:
    """Return the mapping with the unit of its score.

    A ValueError says that there is no score, that no log has a named column, or that the unit is
    not that of the values.
    """
    columns = count_columns(logs)
    shown = ", ".join(sorted(columns)[:SHOWN_COLUMNS])
    if mapping.score is None:
        why = "no column has the name of a score; --init writes a file that can name one of"
        raise ValueError(f"score: {why} {shown}")

    named = {
        "score": column_of(mapping.score),
        "seconds": column_of(mapping.seconds),
        "tokens": column_of(mapping.tokens),
    }
    for key, name in named.items():
        if name and name not in columns:
            raise ValueError(f"{key}={name}: no log has this column; there are {shown}")
    if mapping.run is not None and mapping.run.removeprefix(COLUMN) not in columns:
        raise ValueError(f"run={mapping.run}: no log has this column; there are {shown}")

    for name in mapping.setting:
        if name not in columns:
            raise ValueError(f"setting={name}: no log has this column; there are {shown}")

    _check_several(logs, mapping.several)
    unit = _unit(logs, mapping.score, mapping.unit)
    return msgspec.structs.replace(mapping, unit=unit)


def _unit(logs: Sequence[Log], score: str, given: Unit | None) -> Unit:
    """Tell the unit of the score, whose cells may have a percent sign.

    A number with that sign is read as a share, whatever the name of the column says. A ValueError
    says that only some cells have it.
    """
    numbers: dict[str, list[float]] = {}
    count = 0
    with_sign = 0
    for log in logs:
        cells = log.cells(score)
        numbers[log.name] = [number(cell) for cell in cells]
        count += len(cells)
        for cell in cells:
            if isinstance(cell, str) and "%" in cell:
                with_sign += 1

    if 0 < with_sign < count:
        counts = f"{with_sign} of {count} values"
        raise ValueError(f"score={score}: {counts} have a percent sign: all must have it, or none")
    name = score.replace("%", "") if with_sign else score
    return unit_of(name, numbers, given)


def _check_several(logs: Sequence[Log], several: str | None) -> None:
    """Raise a ValueError if no record is one of those that are to be taken of several."""
    if several is None or several == MEAN:
        return
    column, _, value = several.partition("=")
    texts = set()
    for log in logs:
        for cell in log.cells(column):
            if is_value(cell, value):
                return
            texts.add(str(cell)[:LONGEST_VALUE])

    there = f"no log has a column {column!r}"
    if texts:
        there = f"{column} has {', '.join(sorted(texts)[:SHOWN_COLUMNS])}"
    raise ValueError(f"several={several}: must be COLUMN=VALUE or {MEAN}; {there}")


def is_value(cell: Any, value: str) -> bool:
    """Return whether a cell is what the text `value` says: 0 and 0.0 are equal."""
    return str(cell) == value or number(cell) == number(value)


def column_of(source: str | None) -> str:
    """Return the column that a key of the mapping names, without `sum:`; empty: it names none."""
    return "" if source is None else source.removeprefix(SUM)


def adds_up(source: str | None) -> bool:
    """Return whether a key of the mapping names the amount of each step, by `sum:COLUMN`."""
    return source is not None and source.startswith(SUM)


def columns_of_runs(given: Given) -> list[str]:
    """Return the columns that the user says name the run, method, seed or setting of a row.

    A ValueError says that `run` is none.
    """
    run = given.get("run")
    if run is not None and not run.startswith(COLUMN):
        raise ValueError(f"run={run}: must be column:NAME")

    columns = []
    for key in ("run", "method", "seed"):
        source = given.get(key) or ""
        if source.startswith(COLUMN):
            columns.append(source.removeprefix(COLUMN))
    columns += given.get("setting", [])
    return columns


def count_columns(logs: Sequence[Log]) -> Counter[str]:
    """Count in how many logs each column is."""
    counts: Counter[str] = Counter()
    for log in logs:
        counts.update(log.columns)
    return counts


def scores_among(columns: Collection[str], key: str) -> list[str]:
    """Return the columns that have the name of a score, or of a reward, likely ones first."""
    scores: list[str] = []
    for pattern in NAMES[key]:
        matches = [name for name in sorted(columns) if re.fullmatch(pattern, name)]
        scores += [name for name in matches if name not in scores]
    return scores


def find_column(name: str, columns: Collection[str]) -> str | None:
    """Return the column of this name; dots and slashes between the parts of a name are equal.

    >>> find_column("eval.gsm8k.acc", ["step", "eval/gsm8k/acc"])
    'eval/gsm8k/acc'
    """
    if name in columns:
        return name
    plain = name.strip().replace(".", "/")
    alike = [column for column in columns if column.strip().replace(".", "/") == plain]
    return alike[0] if len(alike) == 1 else None
