"""The unit of a score: a share, a percent, or a number of its own, from its name and values."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pods_lab.audit.formats import some

Unit = Literal["share", "percent", "score"]
PERCENT = re.compile(r"(?i)%|(?<![a-z])(percent|percentage|pct|prozent)(?![a-z])")
ACCURACY = re.compile(
    r"(?i)(?<![a-z])(acc|accuracy|(pass|avg|maj|mean)@\d+|exact_match|em|success|solved?|win)"
    r"(_?(rate|mean|reward))?(?![a-z])"
)
"""Names of scores that cannot be above 1, or above 100 in percent."""

REWARD = re.compile(r"(?i)reward|return|score")


class Range(NamedTuple):
    """Least and largest score."""

    low: float
    high: float


ALLOWED = {
    "share": Range(0.0, 1.0),
    "percent": Range(0.0, 100.0),
    "score": Range(-math.inf, math.inf),
}


def unit_of(name: str, values: Mapping[str, Sequence[float]], given: Unit | None = None) -> Unit:
    """Tell in which unit a score is.

    Numbers from 0 to 1 are shares, unless the name says percent. Numbers from 0 to 100 are a
    percent if the name says that, or that it is an accuracy. All else is a score of its own unit,
    and so is what remains doubtful: its differences are shown as they are, never a hundredfold.

    Args:
        name: the column.
        values: of each run all its scores; what is not finite does not count.
        given: what the user says the unit is.

    A ValueError says that runs are in different units, or that no share or percent can have these
    values.

    >>> unit_of("accuracy", {"a": [0.31, 0.62]}), unit_of("accuracy", {"a": [31.0, 62.0]})
    ('share', 'percent')
    >>> unit_of("reward", {"a": [-0.5, 1.2]})
    'score'
    """
    ranges = _ranges(values)
    if not ranges:
        return given or "score"
    low = min(scores.low for scores in ranges.values())
    high = max(scores.high for scores in ranges.values())
    if given is None:
        return _proposed(name, ranges, Range(low, high))
    allowed = ALLOWED[given]
    if low < allowed.low or high > allowed.high:
        raise ValueError(f"unit={given}: scores go from {low:g} to {high:g}")
    return given


def _proposed(name: str, ranges: Mapping[str, Range], scores: Range) -> Unit:
    """Tell the unit of scores by their range in all runs and the name of their column."""
    says_percent = PERCENT.search(name) is not None
    if scores.low < 0 or scores.high > 100:
        return "score"
    if scores.high <= 1:
        is_doubtful = says_percent and scores.high > 0
        return "score" if is_doubtful else "share"
    if says_percent:
        return "percent"
    if ACCURACY.search(name) is None:
        return "score"
    _check_equal(name, ranges)
    return "percent"


def _ranges(values: Mapping[str, Sequence[float]]) -> dict[str, Range]:
    """Return the range of the finite scores of each run that has any."""
    ranges = {}
    for run, scores in values.items():
        finite = [score for score in scores if math.isfinite(score)]
        if finite:
            ranges[run] = Range(min(finite), max(finite))
    return ranges


def _check_equal(name: str, ranges: Mapping[str, Range]) -> None:
    """Raise a ValueError if some runs seem to have shares and others a percent.

    A run whose scores are all 0 is the same in both units.
    """
    shares = [run for run, scores in ranges.items() if 0 < scores.high <= 1]
    percents = [run for run, scores in ranges.items() if scores.high > 1]
    if shares and percents:
        raise ValueError(
            f"score={name}: {some(shares)} have no score above 1, as shares, and "
            f"{some(percents)} have, as percent: write all in one unit, or set unit: percent"
        )


def doubts(name: str, unit: Unit, scores: Sequence[float]) -> list[str]:
    """Say that the unit of a reward is told by its values alone, and which other one it may be."""
    finite = [score for score in scores if math.isfinite(score)]
    if not finite or REWARD.search(name) is None or PERCENT.search(name):
        return []
    if unit == "share":
        why = "since all its values are from 0 to 1 (unit: score shows it as it is)"
        return [f"{name} is shown in percent, {why}"]
    if unit == "score" and min(finite) >= 0 and 1 < max(finite) <= 100:
        return [f"{name} may be a percent, since its values are from 0 to 100 (unit: percent)"]
    return []
