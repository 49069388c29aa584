"""Training seconds and tokens of a run since its start, from what its records say of time.

A time is one of day, one since the start, or the amount of each step. The clock of an equal-time
comparison counts training alone, so three things are mended, and each is said with the run's name:

- An interval many times as long as usual is a pause, or the start-up, and counts as a usual one.
- A time of day begins at the first record, so the time before it is taken from the usual pace.
- Where a run was resumed, its time restarts or counts steps twice, and an interval is a usual one.

A clock that runs backwards elsewhere is not used.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pods.system.text import duration
from pods.types import Floats
from pods_lab.audit.mapping import adds_up, column_of
from pods_lab.audit.records import SINCE_1970, Notes, Records

PAUSE = 5.0  # times the usual interval; steps of one run hardly differ by more than two
REGULAR = 0.25  # of the intervals: so many long ones are evaluations or saving, and no pauses
ALIKE = 1.5  # the longest of three or more long ones over the shortest: they are no pauses either
RESUMED = 2.0  # times the usual interval, at a resume, is time of steps that were abandoned
SMALLEST_UNIT = {1e17: 1e9, 1e14: 1e6, 1e11: 1e3}  # times of day in ns, us and ms, by their size
NAMED_UNITS = {
    r"h|hrs?|hours?": 3600.0,
    r"min|mins|minutes?": 60.0,
    r"ms|msec|milliseconds?": 1e-3,
}
"""Units of time at the end of a column's name, such as `wall clock [h]`, in seconds."""


def set_clocks(all_records: Sequence[Records], source: str | None, notes: Notes) -> None:
    """Turn the seconds of all runs, as recorded, into training seconds since their start."""
    factor = unit_in_name(column_of(source))
    if factor != 1.0:
        notes.setdefault(f"{source} is read in units of {factor:g} s", [])

    paces = np.array([_usual_pace(records, source) for records in all_records])
    is_known = np.isfinite(paces)
    if is_known.any():
        paces[~is_known] = np.median(paces[is_known])
    for records, pace in zip(all_records, paces.tolist(), strict=True):
        records.seconds = factor * _training_seconds(records, source, pace, factor, notes)


def set_tokens(records: Records, source: str | None, notes: Notes) -> None:
    """Turn the tokens of a run, as recorded, into tokens since its start."""
    is_known = np.isfinite(records.tokens)
    if not is_known.any():
        return
    steps = records.steps[is_known]
    amounts = records.tokens[is_known]
    if adds_up(source):
        amounts = np.cumsum(amounts * _spans(steps))
    elif _runs_backwards(records, "tokens", np.diff(amounts), steps, notes):
        return
    records.tokens = _at_steps(records.steps, steps, amounts)


class _Span(NamedTuple):
    """Of one run the seconds or tokens at its first and last score."""

    run: str
    first: float
    last: float


def drop_without_common_span(all_records: Sequence[Records], key: str) -> list[str]:
    """Forget the times or tokens of all runs if no span of them is covered by all; say so.

    So it is with one final score for each run, after unequal times: at equal time there is then
    nothing to compare.
    """
    spans = []
    for records in all_records:
        span = _span(records, key)
        if span is not None:
            spans.append(span)
    if not spans:
        return []
    latest = max(spans, key=lambda span: span.first)
    earliest = min(spans, key=lambda span: span.last)
    if latest.first <= earliest.last:
        return []

    for records in all_records:
        setattr(records, key, np.full(len(records.steps), np.nan))
    return [
        f"nothing is compared over {key}, since no span of them is covered by all runs: "
        f"{earliest.run} ends at {earliest.last:,.6g}, and the first score of {latest.run} is at "
        f"{latest.first:,.6g}"
    ]


def _span(records: Records, key: str) -> _Span | None:
    """Return the times or tokens between a run's first and last score; None: it has none."""
    amounts = getattr(records, key)[np.isfinite(records.scores)]
    amounts = amounts[np.isfinite(amounts)]
    if not len(amounts):
        return None
    return _Span(records.run, first=amounts.min(), last=amounts.max())


def unit_in_name(source: str) -> float:
    """Return the seconds of the unit that the name of a column ends with; 1: it has none.

    >>> unit_in_name("wall clock [h]"), unit_in_name("elapsed_min"), unit_in_name("hours")
    (3600.0, 60.0, 3600.0)
    """
    for unit, seconds in NAMED_UNITS.items():
        if re.search(rf"(?i)(?:^|[\s_\[(./])({unit})[\])]?$", source):
            return seconds
    return 1.0


def _spans(steps: Floats) -> Floats:
    """Return how many steps each record is about: a line of every tenth step has the mean of ten.

    The first one is about all steps until then, and about one if that is step 0.
    """
    return np.diff(steps, prepend=steps[0] - max(steps[0], 1.0))


class _Intervals(NamedTuple):
    """The K records of a run that have a time: arrays (K,)."""

    steps: Floats
    spans: Floats
    """Steps since the record before."""
    seconds: Floats
    """As recorded, since the record before; the first is NaN if the time is one of day, since
    nothing says when the run began."""


def _intervals(records: Records, source: str | None) -> _Intervals:
    """Read the time between records, which is told as amounts or as a time so far or of day."""
    is_known = np.isfinite(records.seconds)
    steps = records.steps[is_known]
    times = records.seconds[is_known]
    if not len(steps):
        return _Intervals(steps, steps, times)

    spans = _spans(steps)
    if adds_up(source):
        return _Intervals(steps, spans, times * spans)
    if times.min() > SINCE_1970:
        seconds = np.diff(times, prepend=np.nan) / _units_per_second(times.min())
        return _Intervals(steps, spans, seconds)
    return _Intervals(steps, spans, np.diff(times, prepend=0.0))


def _units_per_second(time_of_day: float) -> float:
    """Tell by the size of a time of day whether it is in ns, us, ms or s."""
    for size, units in SMALLEST_UNIT.items():
        if time_of_day > size:
            return units
    return 1.0


def _usual_pace(records: Records, source: str | None) -> float:
    """Return the lower median of a run's seconds per step; NaN: it has less than two intervals."""
    _, spans, seconds = _intervals(records, source)
    paces = seconds / np.maximum(spans, 1e-9)
    paces = np.sort(paces[1:])
    paces = paces[paces >= 0]
    if len(paces) < 2:
        return np.nan
    return float(paces[(len(paces) - 1) // 2])


def _training_seconds(
    records: Records, source: str | None, usual: float, factor: float, notes: Notes
) -> Floats:
    """Return the seconds (P,) since the start of a run, NaN if its clock cannot be used.

    `usual` is the run's own pace, in the recorded unit of time per step.
    """
    steps, spans, intervals = _intervals(records, source)
    if not len(steps):
        return records.seconds
    expected = usual * spans
    if np.isnan(intervals[0]):
        intervals[0] = expected[0] if steps[0] > 0 else 0.0
        if steps[0] > 0:
            note = "time before the first record, which no time of day says, from the usual pace"
            seconds = _amount(factor * intervals[0])
            notes.setdefault(note, []).append(f"{records.run} ({seconds})")
        if np.isnan(intervals[0]):
            return np.full(len(records.steps), np.nan)  # one record: no pace

    attempts = records.attempts[np.isfinite(records.seconds)]
    is_resumed = np.diff(attempts, prepend=attempts[0]) > 0
    is_odd = (intervals < 0) | (intervals > RESUMED * expected)
    intervals = np.where(is_resumed & is_odd, expected, intervals)
    if _runs_backwards(records, "seconds", intervals[1:], steps, notes):
        return np.full(len(records.steps), np.nan)

    intervals = _without_pauses(records.run, steps, intervals, expected, factor, notes)
    return _at_steps(records.steps, steps, np.cumsum(intervals))


def _without_pauses(
    run: str, steps: Floats, intervals: Floats, expected: Floats, factor: float, notes: Notes
) -> Floats:
    """Make usual intervals of those that are much longer, unless they are many, or alike."""
    long = intervals > PAUSE * expected
    if not long.any() or not (expected > 0).all():
        return intervals
    if long.sum() > max(1, REGULAR * len(intervals)) or _are_alike(intervals[long]):
        note = "intervals many times the usual one, so regular that they count as training"
        notes.setdefault(note, []).append(f"{run} ({long.sum()} of {len(intervals)})")
        return intervals

    lost = _amount(factor * float((intervals - expected)[long].sum()))
    first = int(np.flatnonzero(long)[0])
    place = f"after step {steps[first - 1]:g}" if first else f"until step {steps[0]:g}"
    note = f"pauses of more than {PAUSE:g} times the usual interval, which are no training"
    notes.setdefault(note, []).append(f"{run} ({lost} {place})")
    return np.where(long, expected, intervals)


def _are_alike(intervals: Floats) -> bool:
    """Return whether long intervals are so many and so equal that a run has them by its nature."""
    return len(intervals) > 2 and bool(intervals.max() <= ALIKE * intervals.min())


def _runs_backwards(
    records: Records, key: str, intervals: Floats, steps: Floats, notes: Notes
) -> bool:
    """Return whether an amount falls from a step to the next, which is noted; it is then NaN."""
    back = np.flatnonzero(intervals < 0)
    if not len(back):
        return False
    note = f"{key} that run backwards, so they are not used"
    notes.setdefault(note, []).append(f"{records.run} (step {steps[back[0] + 1]:g})")
    setattr(records, key, np.full(len(records.steps), np.nan))
    return True


def _at_steps(steps: Floats, recorded: Floats, amounts: Floats) -> Floats:
    """Return amounts at all (P,) steps, of (K,) recorded ones: on a line between them.

    After the last one it is level, as of an evaluation at the end, for as many steps as are between
    two records at most, and NaN beyond. Nothing was trained at step 0; before the first record it
    is otherwise NaN.
    """
    values = np.interp(steps, recorded, amounts, left=np.nan)
    widest = np.diff(recorded, prepend=0.0).max()
    values = np.where(steps > recorded[-1] + widest, np.nan, values)
    is_start = np.isnan(values) & (steps == 0)
    return np.where(is_start, 0.0, values)


def _amount(seconds: float) -> str:
    """Show seconds for a reader: those below two minutes with three digits."""
    return duration(seconds) if seconds >= 120 else f"{seconds:.3g} s"
