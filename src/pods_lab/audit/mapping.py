"""The mapping: which columns are score, step, time and tokens, and what names run, method and seed.

A mapping file `pods-audit.yaml` has the keys of `Mapping`. What it does not give is proposed from
the names of columns that trainers use (`columns.yaml`).
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
from pods_lab.audit.labels import SEED
from pods_lab.audit.units import Unit, unit_of
from pods_lab.audit.values import number

NAMES = yaml.safe_load(Path(__file__).with_name("columns.yaml").read_text())
MEAN = "mean"  # of several records of a step
COLUMN = "column:"  # before the name of a column that names run, method or seed
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


TIME_WITH_UNIT = re.compile(
    r"(?i)(?!.*(?:per|step|iter))(?:.*\b(?:wall|elapsed|clock|time|duration)\b.*[\s_\[(./])?"
    r"(?:h|hrs?|hours|min|minutes|s|sec|seconds)[\])]?"
)
"""Such as `Elapsed wall clock [h]` or `hours`, and not the time of a step."""

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
}
ALLOWED = {
    "unit": "share, percent or score",
    "step": "a text or a list of texts",
    "questions": "a whole number or null",
    "repeats": "a whole number",
    "method": "a text",
}
"""What a message says that a value must be; of all others a text or null."""


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
    types = {field.name: field.type for field in msgspec.structs.fields(Mapping)}
    given = {}
    for key, value in content.items():
        if key not in types:
            raise ValueError(f"{place}{_shown(key)}: must be one of {', '.join(types)}")
        one_step = key == "step" and isinstance(value, str)
        try:
            given[key] = msgspec.convert([value] if one_step else value, types[key])
        except msgspec.ValidationError as error:
            allowed = ALLOWED.get(key, "a text (in quotes if it looks like a number) or null")
            raise ValueError(f"{place}{key}={_shown(value)}: must be {allowed}") from error
    return given


def _shown(value: Any) -> str:
    """Show a value of any type: a list of lists of lists may be endless."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "keys and values"
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
    lines += [f"#   {json.dumps(name, ensure_ascii=False)}" for name in sorted(columns)]
    path.write_text("\n".join([*lines, ""]))


def propose(logs: Sequence[Log], given: Given) -> Mapping:
    """Complete what is given by what the columns and configs of the logs are called.

    Names of columns that are given may have dots for slashes. `check` says if something needed is
    missing.
    """
    columns = count_columns(logs)
    keys = [key for key in NAMES["method"] if all(log.config.get(key) for log in logs)]
    seeds = [key for key in differing(logs) if key.split(".")[-1] == "seed"]
    seed = "name" if any(SEED.search(log.name) for log in logs) else None
    test_sets = [f"column:{name}" for name in NAMES["test_set"] if name in columns]
    proposed = Mapping(
        score=next(iter(scores_among(columns)), None),
        step=[name for name in NAMES["step"] if name in columns],
        seconds=_most_common(NAMES["seconds"], columns) or _time_with_unit(columns),
        tokens=_most_common(NAMES["tokens"], columns),
        method=f"config:{keys[0]}" if keys else "name",
        seed=f"config:{min(seeds, key=len)}" if seeds else seed,
        test_set=next(iter(test_sets), None),
    )
    chosen = {key: value for key, value in given.items() if (key, value) != ("step", [])}
    mapping = msgspec.structs.replace(proposed, **chosen)
    named = {
        key: _in_logs(getattr(mapping, key), columns) for key in ("score", "seconds", "tokens")
    }
    return msgspec.structs.replace(mapping, **named)


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
    for key in ("score", "seconds", "tokens"):
        name = (getattr(mapping, key) or "").removeprefix(SUM)
        if name and name not in columns:
            raise ValueError(f"{key}={name}: no log has this column; there are {shown}")
    if mapping.run is not None and mapping.run.removeprefix(COLUMN) not in columns:
        raise ValueError(f"run={mapping.run}: no log has this column; there are {shown}")
    _check_several(logs, mapping.several)
    return msgspec.structs.replace(mapping, unit=_unit(logs, mapping))


def _unit(logs: Sequence[Log], mapping: Mapping) -> Unit:
    """Tell the unit of the score, whose cells may have a percent sign.

    A number with that sign is read as a share, whatever the name of the column says. A ValueError
    says that only some cells have it.
    """
    name = mapping.score or ""
    cells = {log.name: [row[name] for row in log.rows if row.get(name) is not None] for log in logs}
    signs = [isinstance(cell, str) and "%" in cell for found in cells.values() for cell in found]
    if any(signs) and not all(signs):
        counts = f"{sum(signs)} of {len(signs)} values"
        raise ValueError(f"score={name}: {counts} have a percent sign: all must have it, or none")
    if any(signs):
        name = name.replace("%", "")
    numbers = {run: [number(cell) for cell in found] for run, found in cells.items()}
    return unit_of(name, numbers, mapping.unit)


def _check_several(logs: Sequence[Log], several: str | None) -> None:
    """Raise a ValueError if no record is one of those that are to be taken of several."""
    if several is None or several == MEAN:
        return
    column, _, value = several.partition("=")
    cells = [row[column] for log in logs for row in log.rows if row.get(column) is not None]
    if not any(is_value(cell, value) for cell in cells):
        there = sorted({str(cell)[:LONGEST_VALUE] for cell in cells})[:SHOWN_COLUMNS]
        has = f"{column} has {', '.join(there)}" if there else f"no log has a column {column!r}"
        raise ValueError(f"several={several}: must be COLUMN=VALUE or {MEAN}; {has}")


def is_value(cell: Any, value: str) -> bool:
    """Whether a cell is what the text `value` says: 0 and 0.0 are equal."""
    return str(cell) == value or number(cell) == number(value)


def said_of(logs: Sequence[Log], mapping: Mapping, given: Given) -> list[str]:
    """Say of each key what it is, and whether it was given or proposed."""
    lines = []
    for key in ABOUT:
        value = getattr(mapping, key)
        shown = ", ".join(value) if isinstance(value, list) else value
        lines.append(f"{key}: {shown} ({'given' if key in given else 'proposed'})")
    other = [name for name in scores_among(count_columns(logs)) if name != mapping.score]
    return [*lines, f"other scores: {', '.join(other[:6])}"] if other else lines


def columns_of_runs(given: Given) -> list[str]:
    """Return the columns that the user says name the run, method or seed of a row.

    A ValueError says that `run` is none.
    """
    run = given.get("run")
    if run is not None and not run.startswith(COLUMN):
        raise ValueError(f"run={run}: must be column:NAME")
    sources = [given.get(key) or "" for key in ("run", "method", "seed")]
    return [source.removeprefix(COLUMN) for source in sources if source.startswith(COLUMN)]


def count_columns(logs: Sequence[Log]) -> Counter[str]:
    """Count in how many logs each column is."""
    return Counter(column for log in logs for column in log.columns)


def scores_among(columns: Collection[str]) -> list[str]:
    """Return the columns that have the name of a score, evaluations before rewards."""
    found = []
    for pattern in NAMES["score"]:
        found += [name for name in sorted(columns) if re.fullmatch(pattern, name)]
    return found


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


def _in_logs(name: str | None, columns: Collection[str]) -> str | None:
    """Return the name of a column as the logs have it, with `sum:` before it if it has that."""
    if name is None:
        return None
    prefix = SUM if name.startswith(SUM) else ""
    column = name.removeprefix(SUM)
    return prefix + (find_column(column, columns) or column)


def _most_common(names: Sequence[str], columns: Counter[str]) -> str | None:
    """Return the name that most logs have, the first of several; None if no log has any."""
    best = max(names, key=lambda name: columns[name.removeprefix(SUM)])
    return best if columns[best.removeprefix(SUM)] else None


def _time_with_unit(columns: Collection[str]) -> str | None:
    """Return the only column whose name says that it is a time and in which unit; None: no such.

    >>> _time_with_unit(["Elapsed wall clock [h]", "step time [s]", "score"])
    'Elapsed wall clock [h]'
    """
    times = [name for name in sorted(columns) if TIME_WITH_UNIT.fullmatch(name)]
    return times[0] if len(times) == 1 else None


def differing(logs: Sequence[Log]) -> list[str]:
    """List the config keys in which the runs differ, for `--by`."""
    keys = sorted({key for log in logs for key in log.config if key != "id" and key[:1] != "_"})
    return [key for key in keys if len({str(log.config.get(key)) for log in logs}) > 1]
