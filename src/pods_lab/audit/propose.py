"""Propose what the columns of logs mean, from the names that trainers give them, and say it."""

import re
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from pods_lab.audit.formats import Log
from pods_lab.audit.labels import from_name
from pods_lab.audit.mapping import (
    ABOUT,
    COLUMN,
    NAMES,
    SUM,
    Given,
    Mapping,
    column_of,
    count_columns,
    find_column,
    scores_among,
)
from pods_lab.audit.records import SINCE_1970
from pods_lab.audit.units import doubts
from pods_lab.audit.values import number, seconds

TIME_WITH_UNIT = re.compile(
    r"(?i)(?!.*(?:per|step|iter))(?:.*(?<![a-z])(?:wall|elapsed|clock|time|duration)(?![a-z]).*[\s_\[(./])?"
    r"(?:h|hrs?|hours|min|minutes|s|sec|seconds)[\])]?"
)
"""Such as `Elapsed wall clock [h]` or `hours`, and not the time of a step."""
LIKE_A_TIME = re.compile(r"(?i)(?:.*[^a-z])?(?:wall|elapsed|clock|time|duration)(?:[^a-z].*)?")
SHOWN_SCORES = 6
LEAST_TIMES = 5  # of a log, to tell a time so far from the time of each step
GROWS = 0.9  # share of the intervals in which a time so far grows; it falls where a run was resumed


def propose(logs: Sequence[Log], given: Given) -> Mapping:
    """Complete what is given by what the columns and configs of the logs are called.

    Names of columns that are given may have dots for slashes. `mapping.check` says if something
    needed is missing.
    """
    columns = count_columns(logs)
    proposed = Mapping(
        score=_score(columns),
        step=[name for name in NAMES["step"] if name in columns],
        seconds=_seconds(logs, columns),
        tokens=_most_common(NAMES["tokens"], columns),
        method=_method(logs),
        seed=_seed(logs),
        test_set=_test_set(columns),
    )

    chosen = dict(given)
    if chosen.get("step") == []:
        del chosen["step"]
    mapping = msgspec.structs.replace(proposed, **chosen)
    return msgspec.structs.replace(
        mapping,
        score=_as_in_logs(mapping.score, columns),
        seconds=_as_in_logs(mapping.seconds, columns),
        tokens=_as_in_logs(mapping.tokens, columns),
    )


def _method(logs: Sequence[Log]) -> str:
    """Propose where the method of a run stands: a config key that all runs have, or the name.

    A key with one value for all runs is none if the names tell of several methods.
    """
    methods = {from_name(log, "method") for log in logs}
    names_tell = 1 < len(methods) < len(logs)
    for key in NAMES["method"]:
        if all(log.config.get(key) for log in logs) and (_differs(logs, key) or not names_tell):
            return f"config:{key}"
    return "name"


def _seed(logs: Sequence[Log]) -> str | None:
    """Propose where the seed of a run stands: in the config, in the name, or nowhere."""
    keys = [key for key in differing(logs) if key.split(".")[-1] == "seed"]
    if keys:
        return f"config:{min(keys, key=len)}"
    if any(from_name(log, "seed") for log in logs):
        return "name"
    return None


def _test_set(columns: Collection[str]) -> str | None:
    """Propose the column that names the test set, or none."""
    for name in NAMES["test_set"]:
        if name in columns:
            return f"{COLUMN}{name}"
    return None


def _score(columns: Counter[str]) -> str | None:
    """Propose the evaluation that most logs have, or else the reward; None: there is neither."""
    for key in ("score", "reward"):
        scores = scores_among(columns, key)
        if scores:
            return max(scores, key=lambda name: columns[name])  # the first of several
    return None


def _seconds(logs: Sequence[Log], columns: Counter[str]) -> str | None:
    """Propose the time that most logs have; None: no log has any.

    Names such as `Time` are of the time of a step and of the time so far. It is the latter if the
    numbers hardly ever fall, or are times of day.
    """
    source = _most_common(NAMES["seconds"], columns)
    if source is None:
        return _time_with_unit(columns)
    column = column_of(source)
    if source.startswith(SUM) and _is_clock([log.cells(column) for log in logs]):
        return column
    return source


def _is_clock(cells_of_logs: Sequence[Sequence[object]]) -> bool:
    """Return whether times are so far: of day in some log, or growing in every log.

    They grow if they do in `GROWS` of the intervals, of logs with `LEAST_TIMES` times or more.
    """
    shares = []
    for cells in cells_of_logs:
        times = np.array([seconds(cell) for cell in cells])
        times = times[np.isfinite(times)]
        if len(times) and times.min() > SINCE_1970:
            return True
        if len(times) >= LEAST_TIMES:
            shares.append(float(np.mean(np.diff(times) > 0)))
    return bool(shares) and min(shares) >= GROWS


def _as_in_logs(source: str | None, columns: Collection[str]) -> str | None:
    """Return the name of a column as the logs have it, with `sum:` before it if it has that."""
    if source is None:
        return None
    name = column_of(source)
    column = find_column(name, columns) or name
    return f"{SUM}{column}" if source.startswith(SUM) else column


def _most_common(sources: Sequence[str], columns: Counter[str]) -> str | None:
    """Return the source that most logs have, the first of several; None if no log has any."""
    best = max(sources, key=lambda source: columns[column_of(source)])
    return best if columns[column_of(best)] else None


def _time_with_unit(columns: Collection[str]) -> str | None:
    """Return the only column whose name says that it is a time and in which unit; None: no such.

    >>> _time_with_unit(["Elapsed wall clock [h]", "step time [s]", "score"])
    'Elapsed wall clock [h]'
    """
    times = [name for name in sorted(columns) if TIME_WITH_UNIT.fullmatch(name)]
    return times[0] if len(times) == 1 else None


def differing(logs: Sequence[Log]) -> list[str]:
    """List the config keys in which the runs differ, for `--by`."""
    keys: set[str] = set()
    for log in logs:
        keys.update(log.config)
    return [key for key in sorted(keys) if _differs(logs, key)]


def _differs(logs: Sequence[Log], key: str) -> bool:
    """Return whether a config key, which is no bookkeeping of a tracker, differs between runs."""
    if key == "id" or key.startswith("_"):
        return False
    return len({str(log.config.get(key)) for log in logs}) > 1


def mapping_lines(logs: Sequence[Log], mapping: Mapping, given: Given) -> list[str]:
    """Say of each key what it is, and whether it was given or proposed."""
    lines = []
    for key in ABOUT:
        value = getattr(mapping, key)
        shown = value
        if isinstance(value, list):
            shown = ", ".join(map(str, value)) or None
        origin = "given" if key in given else "proposed"
        lines.append(f"{key}: {shown} ({origin})")

    columns = count_columns(logs)
    times = [name for name in sorted(columns) if LIKE_A_TIME.fullmatch(name)]
    if mapping.seconds is None and times:
        shown = ", ".join(times[:SHOWN_SCORES])
        lines.append(f"perhaps a time, and not taken: {shown} (seconds: COLUMN takes it)")
    if mapping.score is not None and mapping.unit is not None and "unit" not in given:
        cells = [number(cell) for log in logs for cell in log.cells(mapping.score)]
        lines += doubts(mapping.score, mapping.unit, cells)
    scores = dict.fromkeys(scores_among(columns, "score") + scores_among(columns, "reward"))
    rest = [name for name in scores if name != mapping.score]
    if rest:
        lines.append(f"other scores: {', '.join(rest[:SHOWN_SCORES])}")
    return lines
