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

import numpy as np

from pods.system.text import duration
from pods_lab.audit.mapping import SUM
from pods_lab.audit.records import SINCE_1970, Floats, Notes, Records

PAUSE = 5.0  # times the usual interval; steps of one run hardly differ by more than two
REGULAR = 0.25  # of the intervals: so many long ones are evaluations or saving, and no pauses
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
    factor = unit_in_name(source or "")
    if factor != 1.0:
        notes.setdefault(f"{source} is read in units of {factor:g} s", [])
    paces = [_usual_pace(records, source) for records in all_records]
    known = [pace for pace in paces if np.isfinite(pace)]
    typical = float(np.median(known)) if known else np.nan
    for records, pace in zip(all_records, paces, strict=True):
        usual = pace if np.isfinite(pace) else typical
        records.seconds = factor * _training_seconds(records, source, usual, factor, notes)


def set_tokens(records: Records, source: str | None, notes: Notes) -> None:
    """Turn the tokens of a run, as recorded, into tokens since its start."""
    known = np.isfinite(records.tokens)
    if not known.any():
        return
    steps, amounts = records.steps[known], records.tokens[known]
    if (source or "").startswith(SUM):
        amounts = np.cumsum(amounts * _spans(steps))
    elif _runs_backwards(records, "tokens", np.diff(amounts), steps, notes):
        return
    records.tokens = _at_steps(records.steps, steps, amounts)


def drop_without_common_span(records: Sequence[Records], key: str) -> list[str]:
    """Forget the times or tokens of all runs if no span of them is covered by all; say so.

    So it is with one final score for each run, after unequal times: at equal time there is then
    nothing to compare.
    """
    spans = []
    for one in records:
        values = getattr(one, key)[np.isfinite(one.scores)]
        values = values[np.isfinite(values)]
        if len(values):
            spans.append((values.min(), values.max(), one.run))
    if not spans:
        return []

    first, _, late = max(spans)
    last, early = min((end, run) for _, end, run in spans)
    if first <= last:
        return []
    for one in records:
        setattr(one, key, np.full(len(one.steps), np.nan))
    return [
        f"nothing is compared over {key}, since no span of them is covered by all runs: {early} "
        f"ends at {last:,.6g}, and the first score of {late} is at {first:,.6g}"
    ]


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


def _intervals(records: Records, source: str | None) -> tuple[Floats, Floats, Floats]:
    """Return steps (K,) of the records with a time, steps between them, and seconds between them.

    The first interval is NaN if the time is one of day, since nothing says when the run began.
    """
    known = np.isfinite(records.seconds)
    steps, times = records.steps[known], records.seconds[known]
    spans = _spans(steps) if len(steps) else steps
    if (source or "").startswith(SUM):
        return steps, spans, times * spans
    if len(times) and times.min() > SINCE_1970:
        divisor = next((d for size, d in SMALLEST_UNIT.items() if times.min() > size), 1.0)
        return steps, spans, np.diff(times, prepend=np.nan) / divisor
    return steps, spans, np.diff(times, prepend=0.0)


def _usual_pace(records: Records, source: str | None) -> float:
    """Return the lower median of a run's seconds per step; NaN: it has less than two intervals."""
    _, spans, intervals = _intervals(records, source)
    paces = np.sort((intervals / np.maximum(spans, 1e-9))[1:])
    paces = paces[paces >= 0]
    return float(paces[(len(paces) - 1) // 2]) if len(paces) > 1 else np.nan


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
    resumed = np.diff(attempts, prepend=attempts[0]) > 0
    restarts = resumed & ((intervals < 0) | (intervals > RESUMED * expected))
    intervals = np.where(restarts, expected, intervals)
    if _runs_backwards(records, "seconds", intervals[1:], steps, notes):
        return np.full(len(records.steps), np.nan)
    intervals = _without_pauses(records.run, steps, intervals, expected, factor, notes)
    return _at_steps(records.steps, steps, np.cumsum(intervals))


def _without_pauses(
    run: str, steps: Floats, intervals: Floats, expected: Floats, factor: float, notes: Notes
) -> Floats:
    """Make usual intervals of those that are much longer, unless they are many."""
    long = intervals > PAUSE * expected
    if not long.any() or not (expected > 0).all():
        return intervals
    if long.sum() > max(1, REGULAR * len(intervals)):
        note = "intervals many times the usual one, so regular that they count as training"
        notes.setdefault(note, []).append(f"{run} ({long.sum()} of {len(intervals)})")
        return intervals
    lost = _amount(factor * float((intervals - expected)[long].sum()))
    first = int(np.flatnonzero(long)[0])
    place = f"after step {steps[first - 1]:g}" if first else f"until step {steps[0]:g}"
    note = f"pauses of more than {PAUSE:g} times the usual interval, which are no training"
    notes.setdefault(note, []).append(f"{run} ({lost} {place})")
    return np.where(long, expected, intervals)


def _runs_backwards(
    records: Records, key: str, intervals: Floats, steps: Floats, notes: Notes
) -> bool:
    """Whether an amount falls from a step to the next, which is noted; it is then NaN."""
    back = np.flatnonzero(intervals < 0)
    if not len(back):
        return False
    note = f"{key} that run backwards, so they are not used"
    notes.setdefault(note, []).append(f"{records.run} (step {steps[back[0] + 1]:g})")
    setattr(records, key, np.full(len(records.steps), np.nan))
    return True


def _at_steps(steps: Floats, known: Floats, amounts: Floats) -> Floats:
    """Return amounts at all (P,) steps: between records on a line, after the last one as there.

    Nothing was trained at step 0; before the first record it is otherwise NaN.
    """
    found = np.interp(steps, known, amounts, left=np.nan)
    return np.where(np.isnan(found) & (steps == 0), 0.0, found)


def _amount(seconds: float) -> str:
    """Show seconds for a reader: those below two minutes with three digits."""
    return duration(seconds) if seconds >= 120 else f"{seconds:.3g} s"
