"""What a reader of a comparison has to know before believing any of it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.compare import Comparison
from pods.analysis.outcomes import RunCurve, Window, run_curves
from pods.analysis.statistics import ALPHA
from pods.analysis.tables import at

FEW_RUNS = 5
NEAR = 0.2  # of the window: an evaluation no farther from its end stands for it
RECORD = 0.9  # of a run's record: a window that is shorter leaves too much of it out


def caveats(comparison: Comparison) -> Iterator[str]:
    """A sentence for each thing that weakens the comparison; none where nothing does."""
    study, tests = comparison.study, comparison.contrasts
    tested = tests[tests.p.notna()]
    if len(tested) and min(tested.n.min(), tested.baseline_n.min()) < FEW_RUNS:
        yield (f"Some contrast has fewer than {FEW_RUNS} runs an arm: its t interval rests on a "
               "normal curve that so few runs cannot check.")  # fmt: skip
    yield from _exact_limits(tests[tests.exact_p.notna()])
    arms = [run_curves(study, series) for series in comparison.arms.series]
    yield from _end_of_records(arms, comparison.window)
    if study.seeded and (tested.design == "unpaired").any():
        yield "Arms that share fewer than two seeds are not paired."
    if len(tests) > tests.outcome.nunique():
        yield "Intervals are each for itself, not adjusted over contrasts or targets."
    if comparison.window.start > 0:
        yield f"Nothing before {at(comparison.window.start)} counts: some run has no evaluation."
    groups = {
        "Left out": comparison.left_out,
        "Missing": study.holes,
        "Not alike": study.mixed,
        "Note": [study.note] if study.note else [],
    }
    for what, lines in groups.items():
        if lines:
            yield f"{what}: {'; '.join(lines)}."


def _exact_limits(tested: pd.DataFrame) -> Iterator[str]:
    """Where the exact test is too coarse to settle anything, whatever the runs show."""
    rows: list[Any] = list(tested.drop_duplicates("exact_smallest").itertuples())
    for row in rows:
        family = int((tested.outcome == row.outcome).sum())
        smallest, who = row.exact_smallest, f"{row.n} and {row.baseline_n} runs"
        least = f"With {who}, {row.design}, the exact test can give no p under {smallest:.2g}"
        if smallest > ALPHA:
            yield f"{least}, so it can settle nothing at {ALPHA}."
        elif smallest * family > ALPHA:
            yield (f"{least}, after Holm over {family} contrasts {smallest * family:.2g}, so it "
                   f"can settle none of them alone at {ALPHA}.")  # fmt: skip


def _end_of_records(arms: Sequence[Sequence[RunCurve]], span: Window) -> Iterator[str]:
    """Where the end of the window is no time at which runs were evaluated, or ended."""
    near = NEAR * (span.end - span.start)
    far = [[c for c in arm if np.abs(c.seconds - span.end).min() > near] for arm in arms]
    if any(far):
        names = ", ".join(curves[0].series for curves in far if curves)
        apart = max(_gap(curve, span.end) for curves in far for curve in curves)
        yield (f"No evaluation within {at(near)} of the end, {at(span.end)}, in runs of {names}: "
               f"the accuracy there is a straight line between evaluations up to {at(apart)} "
               "apart.")  # fmt: skip
    last = max((curve for arm in arms for curve in arm), key=lambda curve: curve.seconds[-1])
    if span.end - span.start < RECORD * (last.seconds[-1] - span.start):
        yield (f"Runs end at unequal times: the first at {at(span.end)}, where the window ends, "
               f"the last ({last.series}) at {at(float(last.seconds[-1]))}; nothing after the "
               "window counts.")  # fmt: skip


def _gap(curve: RunCurve, end: float) -> float:
    """Seconds between the evaluations on both sides of the window's end."""
    right = int(np.searchsorted(curve.seconds, end))
    return float(curve.seconds[right] - curve.seconds[right - 1])
