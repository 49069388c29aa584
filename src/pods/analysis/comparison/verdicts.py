"""Say in a sentence what a comparison settles, then in a line per contrast, and what weakens it.

An arm is called higher only where Holm's p is at most 0.05. Otherwise the line says that nothing is
settled, and never that the arms are equal.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.compare import Comparison
from pods.analysis.noise import slow_runs
from pods.analysis.outcomes import MEASURES, run_curves, title_of
from pods.analysis.statistics import ALPHA
from pods.analysis.tables import amount

FEW_RUNS = 5
NEAR = 0.2  # of the window: an evaluation no farther from its end can stand for the end
RECORD = 0.9  # of the longest record: a shorter window leaves out too much of it
Record = Any  # a row of a table, by attribute


def headline(comparison: Comparison) -> str:
    """Say in a sentence which arms differ from their baseline in the first outcome."""
    metric = comparison.study.metric
    tests = comparison.contrasts.groupby("outcome", sort=False)
    outcome, rows = next(iter(tests))
    parts = []
    for baseline, of in rows.groupby("baseline", sort=False):
        found: dict[str, list[Record]] = defaultdict(list)
        for row in of.itertuples():
            found[_status(row) if _settled(row) else ""].append(row)
        parts += [
            f"{_listed(found[status])} {'is' if len(found[status]) == 1 else 'are'} "
            f"{status.lower()} than {baseline}{_by(found[status])}"
            for status in ("HIGHER", "LOWER")
            if found[status]
        ]
        if found[""]:
            parts.append(
                f"no difference between {_listed(found[''])} and {baseline} is settled"
                f"{_more_runs(found[''])}"
            )
    fewest = min(rows.n.min(), rows.baseline_n.min())
    weak = f" (only {fewest} runs per arm: no more than a hint)" if fewest < FEW_RUNS else ""
    return f"In {title_of(str(outcome), metric)}, {'; '.join(parts)}{weak}."


def _listed(rows: Sequence[Record]) -> str:
    """List the arms of some contrasts as a sentence does."""
    *names, last = (row.series for row in rows)
    return f"{', '.join(names)} and {last}" if names else str(last)


def _by(rows: Sequence[Record]) -> str:
    """Give the difference of the only contrast; several stand in their own lines."""
    if len(rows) > 1:
        return ""
    low, high = sorted((abs(rows[0].low), abs(rows[0].high)))
    return f", by {100 * abs(rows[0].estimate):.2f} points ({100 * low:.2f} to {100 * high:.2f})"


def _more_runs(rows: Sequence[Record]) -> str:
    """Say how many runs could settle the only contrast that could not be settled."""
    needed = rows[0].runs_needed
    if len(rows) > 1 or not needed > rows[0].n or np.isinf(needed):
        return ""
    unit = "pairs of runs" if rows[0].design == "paired" else "runs per arm"
    return f" by {rows[0].n} {unit}; about {needed:.0f} would settle one as large as was measured"


def verdicts(comparison: Comparison) -> list[str]:
    """Return a line for each contrast: what its runs settle about the outcomes."""
    lines, metric = [], comparison.study.metric
    for _, tests in comparison.contrasts.groupby(["series", "baseline"], sort=False):
        first: Record
        last: Record
        first, last = tests.itertuples()  # one row per outcome
        opposite = first.estimate * last.estimate < 0 and last.p_holm <= ALPHA
        lines.append(
            f"{first.series} vs {first.baseline}: {_status(first)} in "
            f"{title_of(first.outcome, metric)}, {_evidence(first)}; "
            f"{title_of(last.outcome, metric)} {_evidence(last)}"
            f"{': settled the other way' if opposite else ''}"
        )
    return lines


def _status(row: Record) -> str:
    """Classify one test: HIGHER or LOWER if it is settled, else why it is not."""
    if np.isnan(row.stderr):
        return "not tested (an arm has one run)"
    if np.isnan(row.p):
        return "not tested (no spread between runs)"
    if row.p > ALPHA:
        return "no difference settled"
    if row.p_holm > ALPHA:
        return "only a hint, not settled after Holm,"
    return "HIGHER" if row.estimate > 0 else "LOWER"


def _settled(row: Record) -> bool:
    """Return whether a test finds a difference after Holm's correction."""
    return bool(row.p_holm <= ALPHA)


def _evidence(row: Record) -> str:
    """Give the difference of one outcome in points, with its t interval and Holm's p."""
    difference = f"{100 * row.estimate:+.2f} points"
    if np.isnan(row.p):
        return difference
    return f"{difference} [{100 * row.low:.2f}, {100 * row.high:.2f}], {_probability(row.p_holm)}"


def _probability(p: float) -> str:
    """Show p to two digits."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def caveats(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each thing that weakens the comparison."""
    study, tests, span = comparison.study, comparison.contrasts, comparison.window
    tested = tests[tests.p.notna()]
    if len(tested) and min(tested.n.min(), tested.baseline_n.min()) < FEW_RUNS:
        yield f"Fewer than {FEW_RUNS} runs per arm cannot show whether a t interval is justified."
    yield from _exact_tests(tests[tests.exact_p.notna()], study.metric)
    yield from _end_of_records(comparison)
    if study.seeded and (tested.design == "unpaired").any():
        yield "Arms that share fewer than two seeds are not paired."
    if len(tests) > tests.outcome.nunique():
        yield "Intervals are not adjusted for the number of contrasts or targets; p values are."
    if span.start > 0:
        start = amount(span.start, study.x)
        yield f"What is before {start} is left out: a run has no evaluation there."
    slow = slow_runs(study)
    compared = study.runs.run[study.runs.series.isin(comparison.arms.series)]
    for title, lines in {
        "Left out": comparison.left_out,
        "Missing": study.missing,
        "Inconsistent": study.inconsistencies,
        "Measured times": [slow[run] for run in compared if run in slow],
        "Note": [study.note] if study.note else [],
    }.items():
        yield from (f"{title}: {line}" for line in lines)


def _exact_tests(tests: pd.DataFrame, metric: str) -> Iterator[str]:
    """Say where the exact test contradicts the t test, or cannot settle anything."""
    row: Record
    for row in tests.itertuples():
        family = int((tests.outcome == row.outcome).sum())
        if row.p_holm <= ALPHA < row.exact_p_holm and row.exact_smallest * family <= ALPHA:
            yield (
                f"The exact test does not confirm the {title_of(row.outcome, metric)} of "
                f"{row.series} vs {row.baseline} ({_probability(row.exact_p_holm)} after Holm)."
            )
    for row in tests.drop_duplicates("exact_smallest").itertuples():
        smallest = row.exact_smallest * int((tests.outcome == row.outcome).sum())
        if smallest > ALPHA:
            yield (
                f"With {row.n} and {row.baseline_n} runs, {row.design}, the exact test cannot "
                f"settle anything: its smallest p after Holm is {min(smallest, 1):.2g}."
            )


def _end_of_records(comparison: Comparison) -> Iterator[str]:
    """Say where the window does not end with evaluations, or long before the longest record."""
    span, x = comparison.window, comparison.study.x
    arms = [run_curves(comparison.study, series) for series in comparison.arms.series]
    near = NEAR * (span.end - span.start)
    far = [[c for c in arm if np.abs(c.seconds - span.end).min() > near] for arm in arms]
    if any(far):
        gaps = []
        for curve in (curve for curves in far for curve in curves):
            right = int(np.searchsorted(curve.seconds, span.end))
            gaps.append(float(curve.seconds[right] - curve.seconds[right - 1]))
        yield (
            f"Runs of {', '.join(curves[0].series for curves in far if curves)} have no evaluation "
            f"within {amount(near, x)} of the end, {amount(span.end, x)}: the "
            f"{MEASURES[comparison.study.metric]} there is interpolated "
            f"between evaluations up to {amount(max(gaps), x)} apart."
        )
    last = max((curve for arm in arms for curve in arm), key=lambda curve: curve.seconds[-1])
    if span.end - span.start < RECORD * (last.seconds[-1] - span.start):
        yield (
            f"Runs end at unequal times: the first at {amount(span.end, x)}, where the window "
            f"ends, the last ({last.series}) at {amount(float(last.seconds[-1]), x)}."
        )
