"""What a reader of a comparison has to know before believing any of it."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pods.analysis.comparison.compare import Comparison
from pods.analysis.statistics import ALPHA

FEW_RUNS = 5


def caveats(comparison: Comparison) -> Iterator[str]:
    """A sentence for each thing that weakens the comparison; none where nothing does."""
    study, tests = comparison.study, comparison.contrasts
    tested = tests[tests.p.notna()]
    if len(tested) and min(tested.n.min(), tested.baseline_n.min()) < FEW_RUNS:
        yield (f"Some contrast has fewer than {FEW_RUNS} runs an arm: its t interval rests on a "
               "normal curve that so few runs cannot check.")  # fmt: skip
    yield from _exact_limits(tested)
    if (tested.stderr == 0).any():
        yield "Some differences have no spread at all: an interval of no width is no certainty."
    if study.seeded and (tested.design == "unpaired").any():
        yield "Arms that share fewer than two seeds are not paired."
    if len(tests) > tests.outcome.nunique():
        yield "Intervals are each for itself, not adjusted over contrasts or targets."
    if comparison.window.start > 0:
        yield f"Nothing before {comparison.window.start:.3g} s counts: some run has no evaluation."
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
