"""Rank arms from the best, and say which of the others the runs do not settle to be worse.

Each other arm is tested against the arm that came out best, paired over seeds where seeds decide
prompts and draws, and the p values are adjusted by Holm's method. An arm is `worse` only where the
adjusted p is at most 0.05; what is left is `within noise`, so that the search for the best (n, m)
ends with a set and not with the luckiest of many.

Shapes: S = runs of an arm, or pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.numbers import outcomes
from pods.analysis.numbers.contrasts import contrast_of
from pods.analysis.numbers.outcomes import RunCurve, Window
from pods.analysis.numbers.statistics import ALPHA, holm, t_test

BEST, WORSE, NOISE, UNTESTED = "best", "worse", "within noise", "not tested"
CRITERIA = {"mean": "mean_accuracy", "final": "final_accuracy"}


@dataclass(frozen=True)
class Ranking:
    """Arms from the best to the worst."""

    outcome: str
    """What the arms are ranked by: a function of `pods.analysis.numbers.outcomes`."""
    table: pd.DataFrame
    """One row per arm: rank; series; runs; value and stderr (mean over runs); design of the
    test against the best; estimate (mean of arm - best), low and high (95 % t interval); p; p_holm;
    against_best."""

    @property
    def best(self) -> str:
        """The name of the best arm."""
        return str(self.table.series.iloc[0])

    def found(self, what: str) -> list[str]:
        """Return the arms, from the best, of which the test against the best found this."""
        return [str(name) for name in self.table.series[self.table.against_best == what]]


def rank_arms(
    arms: Mapping[str, Sequence[RunCurve]], by: str, span: Window, seeded: bool
) -> Ranking:
    """Rank arms by what their runs reach in the window of all of them.

    `ValueError`: there is no such criterion.
    """
    if by not in CRITERIA:
        raise ValueError(f"by={by}: must be {' or '.join(CRITERIA)}")
    measure = getattr(outcomes, CRITERIA[by])
    values = {name: np.array([measure(run, span) for run in runs]) for name, runs in arms.items()}
    best, *others = sorted(arms, key=lambda name: -values[name].mean())  # stable
    rows = []
    for place, name in enumerate([best, *others], 1):
        own = t_test(values[name])
        row = {"rank": place, "series": name, "runs": len(values[name])}
        row |= {"value": own.estimate, "stderr": own.stderr}
        if place > 1:
            contrast = contrast_of(list(arms[name]), list(arms[best]), seeded)
            sides = (contrast.arm, contrast.baseline)
            one, other = (np.array([measure(run, span) for run in side]) for side in sides)
            test = contrast.test(one, other)
            row |= {"design": contrast.design}
            row |= {key: getattr(test, key) for key in ("estimate", "low", "high", "p")}
        rows.append(row)
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table.p.to_numpy(float))
    found = [table["rank"] == 1, table.p_holm.isna(), table.p_holm <= ALPHA]
    table["against_best"] = np.select(found, [BEST, UNTESTED, WORSE], NOISE)
    return Ranking(CRITERIA[by], table)
