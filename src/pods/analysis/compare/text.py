"""Say what a comparison finds: a sentence per contrast and outcome, and what weakens it.

A difference is settled where Holm's p of the t test is at most 0.05 and, if so few runs can reach
that, the exact test's too. Otherwise the sentence says why not, and never that arms are equal.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pods.analysis.compare.compare import NOISE, UNTESTED, WORSE, Comparison
from pods.analysis.numbers.outcomes import amount, run_curves, title_of
from pods.analysis.numbers.statistics import ALPHA
from pods.analysis.numbers.tables import slow_runs

FEW_RUNS = 5
RECORD = 0.9  # of the longest record: a shorter window leaves out too much of it
Record = Any  # a row of a table, by attribute


def ranking_verdict(comparison: Comparison) -> str:
    """Say which arm is best, and which others the runs cannot tell from it; "" if unranked."""
    ranking = comparison.ranking
    if ranking is None:
        return ""
    best, others = ranking.table.iloc[0], len(ranking.table) - 1
    runs = f"{best.runs} run{'' if best.runs == 1 else 's'}"
    title = title_of(ranking.outcome, comparison.study)
    said = [f"{ranking.best} has the highest {title}, {100 * best.value:.2f} % over {runs}."]
    if (ranking.table.runs == 1).all():
        return f"{said[0]} With one run per arm nothing can be tested."
    noise, untested, worse = (ranking.found(what) for what in (NOISE, UNTESTED, WORSE))
    if worse:
        are = "is" if len(worse) == 1 else "are"
        said.append(f"{len(worse)} of {others} other arms {are} lower.")
    if noise:
        said.append(f"Within noise of the best: {', '.join(noise)}.")
    if untested:
        said.append(f"Not tested (too few runs, or no spread): {', '.join(untested)}.")
    return " ".join(said)


def verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence for each contrast and outcome: the difference, and if it is settled."""
    table, lines = comparison.contrasts, list[str]()
    families = table.groupby("outcome").exact_p.count()
    row: Record
    for row in table.itertuples():
        title = title_of(row.outcome, comparison.study)
        side = "below" if row.estimate < 0 else "above"
        lines.append(
            f"{title[0].upper()}{title[1:]}: {row.series} is {100 * abs(row.estimate):.2f} points "
            f"{side} {row.baseline}{_certainty(row, int(families[row.outcome]))}."
        )
    return lines


def _certainty(row: Record, family: int) -> str:
    if np.isnan(row.p):
        alone = min(row.runs, row.baseline_runs) < 2
        why = "an arm has one run" if alone else "the runs do not differ from each other"
        return f", which cannot be tested: {why}"
    interval = f"95 % interval {_interval(row)}"
    if row.p > ALPHA:
        return f", but the {interval.replace('interval ', 'interval (')}) includes zero"
    if row.p_holm > ALPHA:
        return (
            f" ({interval}), which is not settled among {family} comparisons "
            f"({_probability(row.p_holm)} after Holm's correction)"
        )
    found = f"{interval}, {_probability(row.p_holm)}"
    if row.exact_smallest * family > ALPHA:
        return f" ({found} by the t test, too few runs for the exact test)"
    if row.exact_p_holm > ALPHA:
        p = _probability(row.exact_p_holm)
        return f" ({interval}), but the exact test does not confirm it ({p})"
    return f" ({found})"


def _interval(row: Record) -> str:
    """Give the ends of the interval, without signs where both have that of the difference."""
    ends = [row.low, row.high] if row.low * row.high < 0 else sorted([abs(row.low), abs(row.high)])
    return f"{100 * ends[0]:.2f} to {100 * ends[1]:.2f}"


def _probability(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def caveats(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each thing that weakens the comparison."""
    study, tests, span = comparison.study, comparison.contrasts, comparison.window
    tested = tests[tests.p.notna()]
    if len(tested) and min(tested.runs.min(), tested.baseline_runs.min()) < FEW_RUNS:
        yield f"Fewer than {FEW_RUNS} runs per arm cannot show whether a t interval is justified."
    yield from _end_of_records(comparison)
    if study.seeded and (tested.design == "unpaired").any():
        yield "Arms that share fewer than two seeds are not paired."
    if len(tests) > tests.outcome.nunique():
        yield "Intervals are not adjusted for the number of contrasts or targets; p values are."
    if span.start > 0:
        start = amount(span.start, study.x)
        yield f"What is before {start} is left out: a run has no evaluation there."
    if comparison.ranking is not None:
        yield (
            f"The best of {len(comparison.ranking.table)} arms is chosen by luck in part (the "
            "winner's curse): confirm its value and its lead with new seeds."
        )
    yield from slow_runs(study)
    for title, lines in {
        "Left out": comparison.left_out,
        "Missing": study.missing,
        "Inconsistent": study.inconsistencies,
        "Note": [study.note] if study.note else [],
    }.items():
        yield from (f"{title}: {line}" for line in lines)


def _end_of_records(comparison: Comparison) -> Iterator[str]:
    """Say where the window ends long before the longest record."""
    span, x, study = comparison.window, comparison.study.x, comparison.study
    curves = [curve for series in comparison.arms.series for curve in run_curves(study, series)]
    last = max(curves, key=lambda curve: curve.seconds[-1])
    if span.end - span.start < RECORD * (last.seconds[-1] - span.start):
        yield (
            f"Runs end at unequal times: the first at {amount(span.end, x)}, where the window "
            f"ends, the last ({last.series}) at {amount(float(last.seconds[-1]), x)}."
        )
