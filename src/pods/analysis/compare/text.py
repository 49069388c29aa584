"""Say what a comparison finds: a sentence per contrast and outcome, and what weakens it.

It explores, so it says above and below. What a plan asks is settled, ahead, behind and equal
(`planned.py`).
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pods.analysis.compare.compare import BELOW, NOT_TOLD_APART, Comparison
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import RunCurve, amount, run_curves, title_of
from pods.analysis.numbers.span import span_lines
from pods.analysis.numbers.statistics import FEW_RUNS, LEAST_RUNS
from pods.analysis.numbers.tables import slow_runs
from pods.system.text import short

RECORD = 0.9  # of the longest record: a shorter window leaves out too much of it
NO_SPREAD = {
    "paired": "the difference is the same in all {runs}",
    "unpaired": "the runs of each arm are equal",
}
NORMAL = {"paired": "differences", "unpaired": "outcomes"}
"""What a t test of each design takes for normally distributed."""
Record = Any  # a row of a table, by attribute


def ranking_verdict(comparison: Comparison) -> str:
    """Say which arm is best, and which others the runs cannot tell from it; "" if unranked."""
    ranking = comparison.ranking
    if ranking is None:
        return ""

    best = ranking.table.iloc[0]
    runs = "1 run" if best.runs == 1 else f"{best.runs} runs"
    title = title_of(ranking.outcome, comparison.study)
    value = shown_score(best.value, comparison.study)
    if comparison.study.share:
        value += " %"
    first = f"{ranking.best} has the highest {title}, {value} over {runs}."
    if ranking.table.p.isna().all():
        return f"{first} No arm is told apart: that takes {LEAST_RUNS} runs of each, which differ."

    sentences = [first]
    below = ranking.arms(BELOW)
    if below:
        verb = "is" if len(below) == 1 else "are"
        rest = len(ranking.table) - 1
        sentences.append(f"{len(below)} of {rest} other arms {verb} below it.")
    others = ranking.arms(NOT_TOLD_APART)
    if others:
        sentences.append(f"Not told apart from it: {', '.join(short(others))}.")
    return " ".join(sentences)


def verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence for each contrast and outcome: the difference, its interval and p."""
    table = comparison.contrasts
    families = table.groupby("outcome").p.count()
    lines = []
    row: Record
    for row in table.itertuples():
        lines.append(_verdict(row, int(families[row.outcome]), comparison.study))
    return lines


def _verdict(row: Record, family: int, study: Study) -> str:
    """Say the difference of one contrast, whose outcome has a family of so many tests."""
    title = title_of(row.outcome, study)
    title = title[0].upper() + title[1:]
    if np.isnan(row.estimate):
        return (
            f"{title}: {row.series} against {row.baseline} is unknown: "
            "a run has a value that is no number."
        )

    points = shown_difference(abs(row.estimate), study)
    certainty = _certainty(row, family, study)
    side = "below" if row.estimate < 0 else "above"
    return f"{title}: {row.series} is {points} {side} {row.baseline} ({certainty})."


def shown_score(value: float, study: Study) -> str:
    """Show a score without its unit: a share in percent, any other as it is."""
    return f"{study.scale * value:.2f}" if study.share else f"{value:.4g}"


def shown_difference(value: float, study: Study) -> str:
    """Show a difference of scores with its unit."""
    return f"{shown_score(value, study)} {study.difference_unit}"


def _certainty(row: Record, family: int, study: Study) -> str:
    """Give interval and p of a contrast, and what they rest on, or say why there are none."""
    runs = f"{row.runs} and {row.baseline_runs} runs"
    if row.design == "paired":
        runs = f"{row.runs} pairs"
    parts = []
    if not np.isnan(row.low):
        parts.append(f"95 % interval {interval_text(row.estimate, row.low, row.high, study)}")

    fewest = min(row.runs, row.baseline_runs)
    if fewest < LEAST_RUNS:
        parts.append(f"with {runs} there is no p")
        return "; ".join(parts)
    if not parts:
        return NO_SPREAD[row.design].format(runs=runs)

    parts.append(_probability(row.p_holm))
    certainty = ", ".join(parts)
    if family > 1:
        certainty += f" after Holm over {family} contrasts"
    if fewest < FEW_RUNS:
        certainty += f"; with {runs} this rests on normal {NORMAL[row.design]}"
    return certainty


def interval_text(estimate: float, low: float, high: float, study: Study) -> str:
    """Give the interval of a difference whose size a sentence gives without its sign."""
    if estimate < 0:
        low, high = -high, -low
    return f"{shown_score(low, study)} to {shown_score(high, study)}"


def _probability(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def caveats(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each thing that weakens the comparison."""
    study = comparison.study
    tests = comparison.contrasts
    span = comparison.window

    if study.prices is None and math.isinf(study.until):
        yield from _end_of_records(comparison)
    yield from span_lines(study, list(comparison.arms.series))
    if study.seeded and (tests[tests.low.notna()].design == "unpaired").any():
        yield "Arms that share fewer than two seeds are not paired."
    if len(tests) > tests.outcome.nunique():
        yield "Intervals are not adjusted for the number of contrasts or targets; p values are."
    if 0 < span.start < span.end:
        before = amount(span.start, study.x)
        yield f"What is before {before} is left out: a run has no evaluation there."
    if comparison.ranking is not None:
        yield (
            f"The best of {len(comparison.ranking.table)} arms is chosen by luck in part (the "
            "winner's curse): confirm its value and its lead with new seeds."
        )
    yield from slow_runs(study)
    yield from _labelled("Left out", comparison.left_out)
    yield from _labelled("Missing", study.missing)
    yield from _labelled("Inconsistent", study.inconsistencies)
    if study.note:
        yield f"Note: {study.note}"


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"{label}: {line}"


def _end_of_records(comparison: Comparison) -> Iterator[str]:
    """Say where the window ends long before the longest record."""
    study = comparison.study
    span = comparison.window
    curves: list[RunCurve] = []
    for series in comparison.arms.series:
        curves += run_curves(study, series)
    last = max(curves, key=lambda curve: curve.seconds[-1])
    if span.end - span.start < RECORD * (last.seconds[-1] - span.start):
        yield (
            f"Runs end at unequal times: the first at {amount(span.end, study.x)}, where the "
            f"window ends, the last ({last.series}) at {amount(float(last.seconds[-1]), study.x)}."
        )
