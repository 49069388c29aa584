"""Arms compared question by question: on which questions of the test set is one better?"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from pods.analysis.comparison.contrasts import Contrast
from pods.analysis.outcomes import ROUNDING, RunCurve
from pods.analysis.statistics import paired_t


def question_differences(contrast: Contrast, answers: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Differences question by question at the last evaluation, given these runs.

    The error is over questions (Miller 2024, arXiv:2411.00640, section 4.2): would it be so on
    other questions of the kind? It says nothing of other seeds.
    """
    ours, theirs = (_by_question(arm, answers) for arm in (contrast.ours, contrast.theirs))
    difference = (ours - theirs).dropna()
    if len(difference) < 2:
        return
    test = paired_t(difference.to_numpy(float))
    apart = difference[difference.abs() > ROUNDING]
    yield {
        "questions": len(difference),
        "unshared": len(ours.index.symmetric_difference(theirs.index)),
        "estimate": test.estimate,
        "stderr": test.stderr,
        "low": test.low,
        "high": test.high,
        "better": (apart > 0).sum(),
        "worse": (apart < 0).sum(),
        "equal": len(difference) - len(apart),
    }


def _by_question(arm: Sequence[RunCurve], answers: pd.DataFrame) -> "pd.Series[Any]":
    """Share of right answers over the arm's runs, by question."""
    rows = answers[answers.run.isin([curve.run for curve in arm])]
    return rows.groupby("question").correct.mean()
