"""Which runs are left out of a comparison: the same run twice, cut off, a second one of a seed.

Independent runs stay, even if few test questions make their scores equal.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods_lab.audit import values
from pods_lab.audit.formats import Log
from pods_lab.audit.records import Floats, Records

LARGEST = float(np.finfo(np.float32).max)
CUT = 0.9  # of what the median run of its method has: a shorter run was cut off
EVIDENCE = 6  # rare numbers that two runs share: chance gives equal scores to fewer in a row
RARE = 0.25  # of the runs at most have a number that is evidence
STATE = re.compile(r"(?i)(.*\.)?(state|status)")  # keys of a config that say how a run ended
LONGEST_CELL = 200  # letters of a text cell in which words are looked for
CALLED = {
    "cut off": r"crashed|killed|aborted|interrupted|preempted|truncated|cut|partial|unfinished|oom",
    "resumed": r"resumed?|restarted?|continued",
    "a copy": r"copy|copied|dup|duplicate|bak|backup",
    "a group of runs": r"grouped|averaged|aggregated?",
}
"""What words in a path or a text column say of a run."""
WORDS = {what: re.compile(rf"(?i)(?<![a-z])({words})(?![a-z])") for what, words in CALLED.items()}


Key = tuple[str, float]  # column and step
Numbers = dict[Key, float]


class _End(NamedTuple):
    """Where a run ends: at its last score."""

    run: str
    method: str
    seed: int
    steps: float
    seconds: float


def unusable(
    runs: pd.DataFrame, logs: Sequence[Log], records: Sequence[Records], score: str
) -> dict[str, str]:
    """Say of each run that is left out why.

    Args:
        runs: run, series and seed of each run.
        logs: of the same runs, in the same order.
        records: likewise, with their training seconds.
        score: the column that is compared.
    """
    scored = {one.run: np.isfinite(one.scores) for one in records}
    reasons = {one.run: one.unusable for one in records if one.unusable}
    for one in records:
        if not scored[one.run].any():
            reasons.setdefault(one.run, "has no score at a step")
    left = [(log, one) for log, one in zip(logs, records, strict=True) if one.run not in reasons]
    reasons |= dict(_same(left, score))
    ends = []
    labels = zip(runs.series.astype(str), runs.seed.astype(int), strict=True)
    for (method, seed), one in zip(labels, records, strict=True):
        steps = _last(one.steps, scored[one.run])
        seconds = _last(one.seconds, scored[one.run])
        ends.append(_End(one.run, method, seed, steps, seconds))
    reasons |= dict(_cut_off([end for end in ends if end.run not in reasons]))
    reasons |= dict(_second([end for end in ends if end.run not in reasons]))
    return reasons


def _last(amounts: Floats, scored: NDArray[np.bool_]) -> float:
    """Return an amount at the last score of a run; NaN: it has no score, or no amount there."""
    return float(amounts[scored][-1]) if scored.any() else math.nan


def _cut_off(ends: Sequence[_End]) -> Iterator[tuple[str, str]]:
    """Yield runs that end before others of their method do, in steps and in seconds.

    A run on a slow machine has fewer steps in the same time, and one on a fast machine needs less
    time for as many steps. Neither was cut off.
    """
    methods: dict[str, list[_End]] = {}
    for end in ends:
        methods.setdefault(end.method, []).append(end)
    for of_method in methods.values():
        usual_steps = median(end.steps for end in of_method)
        timed = [end.seconds for end in of_method if not math.isnan(end.seconds)]
        usual_seconds = median(timed) if timed else math.nan
        for end in of_method:
            in_steps = end.steps < CUT * usual_steps
            in_time = not end.seconds >= CUT * usual_seconds  # so it is if there is no time
            if in_steps and in_time:
                known = not math.isnan(end.seconds)
                spent = f", {end.seconds:,.0f} of {usual_seconds:,.0f} s" if known else ""
                reached = f"{end.steps:g} of {usual_steps:g} steps{spent}"
                yield end.run, f"is cut off before other runs of its method end ({reached})"


def _second(ends: Sequence[_End]) -> Iterator[tuple[str, str]]:
    """Yield all but the longest run of each method and seed."""
    longest: dict[tuple[str, int], _End] = {}
    for end in sorted(ends, key=lambda end: -end.steps):  # stable
        other = longest.setdefault((end.method, end.seed), end)
        if other is not end:
            longer = "longer" if other.steps > end.steps else "as long"
            steps = f"{other.steps:g} and {end.steps:g} steps"
            yield end.run, f"has method and seed of {other.run}, which is {longer} ({steps})"


def _same(left: Sequence[tuple[Log, Records]], score: str) -> Iterator[tuple[str, str]]:
    """Yield runs all of whose recorded numbers are those of an earlier run.

    Two runs of equal scores may be independent: with 30 questions, three evaluations are equal by
    chance in many studies. So each number that both recorded must be equal, also loss and seconds,
    and `EVIDENCE` of them must be numbers that few other runs have.
    """
    alike: dict[bytes, list[tuple[Log, Records]]] = {}
    for log, records in left:
        scored = np.isfinite(records.scores)
        points = np.stack([records.steps[scored], records.scores[scored]])
        alike.setdefault(points.astype(np.float32).tobytes(), []).append((log, records))
    groups = [group for group in alike.values() if len(group) > 1]
    if not groups:
        return
    numbers = {log.name: _numbers(log, records, score) for log, records in left}
    owners = Counter(number for found in numbers.values() for number in found.items())
    most = max(2.0, RARE * len(left))
    for group in groups:
        kept: list[str] = []
        for log, _ in group:
            one = numbers[log.name]
            same = [run for run in kept if _is_same(numbers[run], one, owners, most)]
            if same:
                count = len(numbers[same[0]].keys() & one.keys())
                yield log.name, f"is the same run as {same[0]}: all {count} numbers are equal"
            else:
                kept.append(log.name)


def _numbers(log: Log, records: Records, score: str) -> Numbers:
    """Return the numbers of a run by column and step, in TensorBoard's precision.

    Columns but the score that are a line in the step, such as the step itself, say nothing of a
    run.
    """
    by_column: dict[str, dict[float, float]] = {}
    steps = {*records.steps.tolist()}
    step_columns = [name for name in log.columns if "step" in name.lower()]
    at = -1.0
    for row in log.rows:
        known = [values.step(row[name]) for name in step_columns if name in row]
        at = next((step for step in known if step in steps), at)
        for column, cell in row.items():
            number = values.number(cell)
            if abs(number) < LARGEST:  # which is false of NaN
                by_column.setdefault(column, {})[at] = float(np.float32(number))
    numbers: Numbers = {}
    for column, found in by_column.items():
        if column == score or not _is_line(found):
            numbers |= {(column, step): number for step, number in found.items()}
    return numbers


def _is_line(numbers: dict[float, float]) -> bool:
    """Whether the numbers of a column lie on a line over the steps, or are less than three."""
    if len(numbers) < 3:
        return True
    steps = np.array([*numbers], float)
    found = np.array([*numbers.values()], float)
    slope, start = np.polyfit(steps - steps[0], found, 1)
    off = np.abs(start + slope * (steps - steps[0]) - found).max()
    return bool(off <= 1e-5 * max(np.abs(found).max(), 1e-9))


def _is_same(one: Numbers, other: Numbers, owners: Counter[tuple[Key, float]], most: float) -> bool:
    """Whether all numbers of two runs are equal, and enough of them are of `most` runs at most."""
    common = one.keys() & other.keys()
    if any(one[key] != other[key] for key in common):
        return False
    return sum(owners[key, one[key]] <= most for key in common) >= EVIDENCE


def called(logs: Sequence[Log]) -> Iterator[str]:
    """Say what path or columns of some runs call them, such as cut off or resumed.

    What all runs are called, such as the name of a folder, tells nothing.
    """
    for what, pattern in WORDS.items():
        found = {}
        for log in logs:
            evidence = _evidence(log, pattern)
            if evidence:
                found[log.name] = evidence
        if 0 < len(found) < len(logs):
            named = [f"{run} ({evidence})" for run, evidence in found.items()]
            yield f"runs that their own name or column calls {what}: {some(named)}"


def _evidence(log: Log, pattern: re.Pattern[str]) -> str:
    """Return the part of a run's name or path, or its column and value, that the pattern fits."""
    for part in (log.name, log.path.name, log.path.parent.name):
        if pattern.search(part):
            return part
    states = {key: cell for key, cell in log.config.items() if STATE.fullmatch(key)}
    last_row = log.rows[-1] if log.rows else {}
    for name, cell in (states | last_row).items():
        if isinstance(cell, str) and pattern.search(cell[:LONGEST_CELL]):
            return f"{name}: {cell[:LONGEST_CELL]}"
    return ""


def some(named: Sequence[str], most: int = 4) -> str:
    """Name some of several things, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(named) - most
    return ", ".join(named[:most]) + (f" and {more} more" if more > 0 else "")
