"""Which runs are left out of a comparison: the same run twice, cut off, a second one of a seed.

Independent runs stay, even if few test questions make their scores equal.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd

from pods_lab.audit import values
from pods_lab.audit.formats import Log, Row
from pods_lab.audit.records import Records

LARGEST = float(np.finfo(np.float32).max)
CUT = 0.9  # of what the median run of its method has: a shorter run was cut off
CUT_OFF = "is cut off before other runs of its method end"
EVIDENCE = 6  # rare numbers that two runs share: chance gives equal scores to fewer in a row
RARE = 0.25  # of the runs at most have a number that is evidence

Key = tuple[str, float]  # column and step
Numbers = dict[Key, float]


class _Run(NamedTuple):
    """What a run recorded, and where it ends: at its last score."""

    log: Log
    records: Records
    method: str
    seed: int
    steps: float
    seconds: float

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.records.run


def unusable(
    table: pd.DataFrame, logs: Sequence[Log], all_records: Sequence[Records], score: str
) -> dict[str, str]:
    """Say of each run that is left out why.

    Args:
        table: run, series and seed of each run.
        logs: of the same runs, in the same order.
        all_records: likewise, with their training seconds.
        score: the column that is compared.
    """
    reasons = {}
    remaining = []
    labels = zip(table.series.astype(str), table.seed.astype(int), strict=True)
    for log, (method, seed), records in zip(logs, labels, all_records, strict=True):
        scored = np.flatnonzero(np.isfinite(records.scores))
        if records.unusable:
            reasons[records.run] = records.unusable
        elif not len(scored):
            reasons[records.run] = "has no score at a step"
        else:
            steps = float(records.steps[scored[-1]])
            seconds = float(records.seconds[scored[-1]])
            remaining.append(_Run(log, records, method, seed, steps, seconds))

    reasons |= _copies(remaining, score)
    remaining = [run for run in remaining if run.name not in reasons]
    reasons |= _cut_off(remaining)
    remaining = [run for run in remaining if run.name not in reasons]
    reasons |= _second_of_seed(remaining)
    return reasons


def _cut_off(runs: Sequence[_Run]) -> dict[str, str]:
    """Return runs that end before others of their method do, in steps and in seconds.

    A run on a slow machine has fewer steps in the same time, and one on a fast machine needs less
    time for as many steps. Neither was cut off.
    """
    methods: dict[str, list[_Run]] = {}
    for run in runs:
        methods.setdefault(run.method, []).append(run)

    reasons = {}
    for group in methods.values():
        usual_steps = median(run.steps for run in group)
        usual_seconds = _median_seconds(group)
        for run in group:
            has_steps = run.steps >= CUT * usual_steps
            has_time = run.seconds >= CUT * usual_seconds  # which is false if there is no time
            if has_steps or has_time:
                continue
            reached = f"{run.steps:g} of {usual_steps:g} steps"
            if not math.isnan(run.seconds):
                reached += f", {run.seconds:,.0f} of {usual_seconds:,.0f} s"
            reasons[run.name] = f"{CUT_OFF} ({reached})"
    return reasons


def _median_seconds(runs: Sequence[_Run]) -> float:
    """Return the median of the seconds at the last scores; NaN: no run has a time."""
    finite = [run.seconds for run in runs if not math.isnan(run.seconds)]
    return median(finite) if finite else math.nan


def _second_of_seed(runs: Sequence[_Run]) -> dict[str, str]:
    """Return all but the longest run of each method and seed."""
    reasons = {}
    longest_runs: dict[tuple[str, int], _Run] = {}
    for run in sorted(runs, key=lambda run: -run.steps):  # stable
        longest = longest_runs.setdefault((run.method, run.seed), run)
        if longest is run:
            continue
        longer = "longer" if longest.steps > run.steps else "as long"
        steps = f"{longest.steps:g} and {run.steps:g} steps"
        reasons[run.name] = f"has method and seed of {longest.name}, which is {longer} ({steps})"
    return reasons


def _copies(runs: Sequence[_Run], score: str) -> dict[str, str]:
    """Return runs all of whose recorded numbers are those of an earlier run.

    Two runs of equal scores may be independent: with 30 questions, three evaluations are equal by
    chance in many studies. So each number that both recorded must be equal, also loss and seconds,
    and `EVIDENCE` of them must be numbers that few other runs have.
    """
    groups = _equal_scores(runs)
    if not groups:
        return {}
    numbers = {run.name: _numbers(run.log, run.records, score) for run in runs}
    owners: Counter[tuple[Key, float]] = Counter()
    for numbers_of_run in numbers.values():
        owners.update(numbers_of_run.items())
    most = max(2.0, RARE * len(runs))

    reasons = {}
    for group in groups:
        kept: list[str] = []
        for run in group:
            original = _original(run.name, kept, numbers, owners, most)
            if original is None:
                kept.append(run.name)
                continue
            count = len(numbers[original].keys() & numbers[run.name].keys())
            reasons[run.name] = f"is the same run as {original}: all {count} numbers are equal"
    return reasons


def _equal_scores(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return groups of runs with the same scores at the same steps, in TensorBoard's precision."""
    groups: dict[bytes, list[_Run]] = {}
    for run in runs:
        scored = np.isfinite(run.records.scores)
        points = np.stack([run.records.steps[scored], run.records.scores[scored]])
        groups.setdefault(points.astype(np.float32).tobytes(), []).append(run)
    return [group for group in groups.values() if len(group) > 1]


def _original(
    run: str,
    earlier: Sequence[str],
    numbers: dict[str, Numbers],
    owners: Counter[tuple[Key, float]],
    most: float,
) -> str | None:
    """Return the first earlier run of which a run is a copy; None: it is none.

    Only numbers that `most` runs at most have are evidence.
    """
    for name in earlier:
        if _is_same(numbers[name], numbers[run], owners, most):
            return name
    return None


def _numbers(log: Log, records: Records, score: str) -> Numbers:
    """Return the numbers of a run by column and step, in TensorBoard's precision.

    Columns but the score that are a line in the step, such as the step itself, say nothing of a
    run.
    """
    steps = set(records.steps.tolist())
    step_columns = [name for name in sorted(log.columns) if "step" in name.lower()]
    by_column: dict[str, dict[float, float]] = {}
    step = -1.0
    for row in log.rows:
        step = _step(row, step_columns, steps, before=step)
        for column, cell in row.items():
            number = values.number(cell)
            if abs(number) < LARGEST:  # which is false of NaN
                by_column.setdefault(column, {})[step] = float(np.float32(number))

    telling = {}
    for column, by_step in by_column.items():
        if column == score or not _is_line(by_step):
            telling[column] = by_step
    return _by_key(telling)


def _by_key(by_column: dict[str, dict[float, float]]) -> Numbers:
    numbers: Numbers = {}
    for column, by_step in by_column.items():
        for step, number in by_step.items():
            numbers[column, step] = number
    return numbers


def _step(row: Row, columns: Sequence[str], steps: set[float], before: float) -> float:
    """Return the step of a row, or of the row before if it has none."""
    for column in columns:
        if column in row:
            step = values.step(row[column])
            if step in steps:
                return step
    return before


def _is_line(by_step: dict[float, float]) -> bool:
    """Return whether the numbers of a column lie on a line over the steps, or are two."""
    if len(by_step) < 3:
        return True
    steps = np.array(list(by_step), float)
    numbers = np.array(list(by_step.values()), float)
    slope, start = np.polyfit(steps - steps[0], numbers, 1)
    line = start + slope * (steps - steps[0])
    distance = np.abs(line - numbers).max()
    return bool(distance <= 1e-5 * max(np.abs(numbers).max(), 1e-9))


def _is_same(
    first: Numbers, second: Numbers, owners: Counter[tuple[Key, float]], most: float
) -> bool:
    """Return whether all numbers of two runs are equal, and enough of them are rare."""
    rare = 0
    for key in first.keys() & second.keys():
        if first[key] != second[key]:
            return False
        if owners[key, first[key]] <= most:
            rare += 1
    return rare >= EVIDENCE
