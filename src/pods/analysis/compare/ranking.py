"""Rank arms from the best, and say which of the others the runs do not settle to be worse.

Each other arm is tested against the arm that came out best, paired over seeds where seeds decide
prompts and draws, and the p values are adjusted by Holm's method. An arm is `worse` only where the
adjusted p is at most 0.05; what is left is `within noise`, so that the search for the best (n, m)
ends with a set and not with the luckiest of many.

Shapes: S = runs of an arm, or pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pods.analysis.loading.filter import only
from pods.analysis.loading.study import Study, with_columns
from pods.analysis.numbers import outcomes
from pods.analysis.numbers.contrasts import choose_arms, contrast_of
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


def best_of_each(study: Study, column: str, by: str) -> Study:
    """Keep the best series of each value of a column of `Study.runs`, such as of each arm.

    `ValueError`: there is no such column, or no such criterion.
    """
    columns = ("arm", "rule", "n", "m", *study.varied)
    if column not in columns:
        raise ValueError(f"per={column}: must be one of {', '.join(columns)}")
    arms = choose_arms(study, ())
    span = outcomes.window((curve for runs in arms.values() for curve in runs), study.until)
    table = rank_arms(arms, by, span, study.seeded).table
    best = with_columns(table, study, [column]).drop_duplicates(column).series
    names = [name for name in study.runs.series.unique() if name in {*best, study.baseline}]
    chosen = f"each is the best of its {column}, of {len(table)} in all, by luck in part"
    return replace(only(study, names), note="; ".join(filter(None, [study.note, chosen])))
