"""The window of a study's runs, and at prices the run that ends it."""

import math
from collections.abc import Iterator, Sequence

from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import RunCurve, Window, amount, run_curves, window


def window_of(study: Study, curves: Sequence[RunCurve]) -> Window:
    """Return the window of the runs that are compared.

    `ValueError`: see `window`. At prices also: a run ends before the chosen end, or has no
    evaluation after step 0 in the window, so that its curve there is a mere guess.
    """
    span = window(curves, study.until)
    if study.prices is None:
        return span

    shortest = _shortest(curves)
    for curve in curves:
        later = curve.seconds[curve.seconds > 0]
        if not (later <= span.end).any():
            raise ValueError(
                f"{_name(curve)} has no evaluation after step 0 until "
                f"{amount(span.end, study.x)}, where {_name(shortest)} ends {study.clock}: "
                "it must be evaluated earlier, or the other one be longer"
            )
    if shortest.seconds[-1] < study.until < math.inf:
        raise ValueError(
            f"until={study.until:g}: must be covered by all runs; {_name(shortest)} ends at "
            f"{amount(float(shortest.seconds[-1]), study.x)} after {shortest.steps[-1]:,.0f} steps "
            f"and needs {_steps_to(shortest, study.until):,} {study.clock}"
        )
    return span


def span_lines(study: Study, names: Sequence[str] = ()) -> Iterator[str]:
    """Say which run ends the window at prices, and how many steps would cover the longest one.

    `names` are the curves that are compared; none: all.
    """
    curves: list[RunCurve] = []
    for series in names or study.runs.series.unique():
        curves += run_curves(study, series)
    if study.prices is None or not curves or math.isfinite(study.until):
        return

    shortest = _shortest(curves)
    longest = max(curves, key=lambda curve: curve.seconds[-1])
    end = amount(float(shortest.seconds[-1]), study.x)
    line = (
        f"{study.clock[0].upper()}{study.clock[1:]} the span is 0 to {end}, where "
        f"{_name(shortest)} ends after {shortest.steps[-1]:,.0f} steps"
    )
    needed = _steps_to(shortest, float(longest.seconds[-1]))
    if needed > shortest.steps[-1]:
        last = amount(float(longest.seconds[-1]), study.x)
        line += f"; {needed:,} steps would cover the {last} of {_name(longest)}"
    yield f"{line}."


def _shortest(curves: Sequence[RunCurve]) -> RunCurve:
    return min(curves, key=lambda curve: curve.seconds[-1])


def _steps_to(curve: RunCurve, end: float) -> int:
    """Return how many steps of a run, at their mean cost, reach this place."""
    return math.ceil(end * float(curve.steps[-1]) / float(curve.seconds[-1]))


def _name(curve: RunCurve) -> str:
    return f"{curve.series} seed {curve.seed}"
