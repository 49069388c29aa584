"""The unit of a score: a share, a percent, or a number of its own, from its name and values."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

Unit = Literal["share", "percent", "score"]
PERCENT = re.compile(r"(?i)%|(?<![a-z])(percent|percentage|pct|prozent)(?![a-z])")
ACCURACY = re.compile(
    r"(?i)(?<![a-z])(acc|accuracy|(pass|avg|maj|mean)@\d+|exact_match|em|success|solved?|win)"
    r"(_?(rate|mean|reward))?(?![a-z])"
)
"""Names of scores that cannot be above 1, or above 100 in percent."""
NAMED = 4  # runs that a message names


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
    finite = {run: [x for x in found if math.isfinite(x)] for run, found in values.items()}
    finite = {run: found for run, found in finite.items() if found}
    if not finite:
        return given or "score"
    low = min(map(min, finite.values()))
    high = max(map(max, finite.values()))
    if given is not None:
        _check(given, low, high)
        return given
    says_percent = PERCENT.search(name) is not None
    if low >= 0 and high <= 1:
        return "score" if says_percent and high > 0 else "share"
    if low >= 0 and high <= 100 and (says_percent or ACCURACY.search(name)):
        if not says_percent:
            _check_equal(name, finite)
        return "percent"
    return "score"


def _check(given: Unit, low: float, high: float) -> None:
    """Raise a ValueError if no score of the given unit can have these values."""
    most = {"share": 1.0, "percent": 100.0, "score": math.inf}[given]
    least = -math.inf if given == "score" else 0.0
    if low < least or high > most:
        raise ValueError(f"unit={given}: scores go from {low:g} to {high:g}")


def _check_equal(name: str, finite: Mapping[str, Sequence[float]]) -> None:
    """Raise a ValueError if some runs seem to have shares and others a percent.

    A run whose scores are all 0 is the same in both units.
    """
    shares = [run for run, found in finite.items() if 0 < max(found) <= 1]
    percents = [run for run, found in finite.items() if max(found) > 1]
    if shares and percents:
        raise ValueError(
            f"score={name}: {_named(shares)} have no score above 1, as shares, and "
            f"{_named(percents)} have, as percent: write all in one unit, or set unit: percent"
        )


def _named(runs: Sequence[str]) -> str:
    """Name some of the runs, and how many more there are."""
    more = len(runs) - NAMED
    return ", ".join(runs[:NAMED]) + (f" and {more} more" if more > 0 else "")
