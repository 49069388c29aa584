"""Rank arms from the best, and say which of the others the runs do not settle to be worse.

Each other arm is tested against the arm that came out best, paired over seeds where seeds decide
prompts and draws, and the p values are adjusted by Holm's method. An arm is `worse` only where the
adjusted p is at most 0.05; what is left is `within noise`, so that the search for the best (n, m)
ends with a set and not with the luckiest of many.

Times to a target are ranked by their median, in which a run that never arrives is infinitely late.
A t interval of times is given only where all runs arrive; else an exact test that needs nothing but
their order decides: the sign test of pairs, or Wilcoxon's rank-sum test.

Shapes: S = runs of an arm, or pairs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis import outcomes
from pods.analysis.comparison.contrasts import Contrast, choose_arms, contrast_of
from pods.analysis.comparison.speedup import median
from pods.analysis.outcomes import RunCurve, Window, crossings
from pods.analysis.resampling import permutation, sign_flip
from pods.analysis.statistics import ALPHA, Floats, holm, mean_and_stderr, t_test
from pods.analysis.study import Study

BEST, WORSE, NOISE, UNTESTED = "best", "worse", "within noise", "not tested"
Row = dict[str, Any]


@dataclass(frozen=True)
class Criterion:
    """What arms are ranked by: an outcome, of which more is better, or the time to a target."""

    outcome: str | None
    """A function of `pods.analysis.outcomes`; None: the time to the target."""
    target: float = float("nan")
    """The accuracy whose time counts."""

    def values(self, runs: Sequence[RunCurve], span: Window) -> Floats:
        """Return the (S,) outcomes of runs; a time is inf where the run does not get there."""
        if self.outcome is None:
            times: Floats = crossings(runs, np.array([self.target]), span)[0][0]
            return times
        measure = getattr(outcomes, self.outcome)
        return np.array([measure(run, span) for run in runs], float)


MEAN = Criterion("mean_accuracy")


@dataclass(frozen=True)
class Ranking:
    """Arms from the best to the worst."""

    by: Criterion
    window: Window
    table: pd.DataFrame
    """One row per arm: rank; series; runs; value (mean over runs, or median time) and stderr (of a
    mean); reached (runs that get to the target); design, n and baseline_n of the test against the
    best; estimate (mean of arm - best), low and high (95 % t interval); p; p_holm; against_best."""
    left_out: list[str]
    """Runs that were not used, or not in the test against the best, each with the reason."""

    @property
    def best(self) -> str:
        """The name of the best arm."""
        return str(self.table.series.iloc[0])

    def found(self, what: str) -> list[str]:
        """Return the arms, from the best, of which the test against the best found this."""
        return [str(name) for name in self.table.series[self.table.against_best == what]]


def criterion(text: str) -> Criterion:
    """Read what a user wants to rank by.

    Raises:
        ValueError: it is none of `mean`, `final` and `time_to:X` with an accuracy X.

    >>> criterion("final"), criterion("time_to:0.8").target
    (Criterion(outcome='final_accuracy', target=nan), 0.8)
    """
    if text in ("mean", "final"):
        return Criterion(f"{text}_accuracy")
    number = re.fullmatch(r"time_to:(\d*\.?\d+)", text)
    target = float(number[1]) if number else 0.0
    if not 0 < target <= 1:
        raise ValueError(
            f"by={text}: must be mean, final, or time_to:X with an accuracy X above 0 and at most 1"
        )
    return Criterion(None, target)


def rank(study: Study, by: Criterion) -> Ranking:
    """Rank the arms of a study by their complete runs.

    Raises:
        ValueError: fewer than two arms have complete runs, or no run reaches the target.
    """
    arms, left_out = choose_arms(study, ())
    span = outcomes.window((curve for arm in arms.values() for curve in arm), study.until)
    ranking = rank_arms(arms, by, span, study.seeded)
    return replace(ranking, left_out=[*left_out, *ranking.left_out])


def rank_arms(
    arms: Mapping[str, Sequence[RunCurve]], by: Criterion, span: Window, seeded: bool
) -> Ranking:
    """Rank arms by what their runs reach in a window.

    Args:
        arms: the runs of each arm, at least one.
        by: what is ranked by.
        span: the window of all runs.
        seeded: equal seeds mean equal prompts and draws, so that runs may be paired.

    Raises:
        ValueError: no run reaches the target.
    """
    values = {name: by.values(runs, span) for name, runs in arms.items()}
    if not np.isfinite(np.concatenate([*values.values()])).any():
        highest = max(float(run.accuracy.max()) for runs in arms.values() for run in runs)
        raise ValueError(
            f"by=time_to:{by.target:g}: must be an accuracy that some run reaches in the window; "
            f"the highest of all evaluations is {highest:.4g}"
        )
    rows = sorted((_row(by, name, of_arm) for name, of_arm in values.items()), key=_order(by))
    runs = [list(arms[row["series"]]) for row in rows]
    contrasts = [contrast_of(others, runs[0], seeded) for others in runs[1:]]
    tests: list[Row] = [{}, *(_against(contrast, by, span) for contrast in contrasts)]
    columns = ["rank", "series", "runs", "value", "stderr", "reached", "design", "n", "baseline_n"]
    columns += ["estimate", "low", "high", "p", "worse"]
    ranked = [row | test for row, test in zip(rows, tests, strict=True)]
    table = pd.DataFrame(ranked).reindex(columns=columns)
    table["rank"] = np.arange(len(table)) + 1
    table["p_holm"] = holm(table.p.to_numpy(float))
    table["against_best"] = [
        _found(*row) for row in zip(table["rank"], table.p_holm, table.pop("worse"), strict=True)
    ]
    return Ranking(by, span, table, [line for each in contrasts for line in each.left_out])


def natural(name: str) -> list[Any]:
    """Return a key that sorts names by the numbers in them.

    >>> sorted(["pods 12→12", "pods 12→3", "all 6→6"], key=natural)
    ['all 6→6', 'pods 12→3', 'pods 12→12']
    """
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _row(by: Criterion, name: str, values: Floats) -> Row:
    """Summarize an arm: the mean of an outcome, or the median of times."""
    row: Row = {"series": name, "runs": len(values)}
    if by.outcome is None:
        reached = int(np.isfinite(values).sum())
        return row | {"value": float(median(values)), "stderr": np.nan, "reached": reached}
    mean, stderr = mean_and_stderr(values[:, None])
    return row | {"value": float(mean[0]), "stderr": float(stderr[0]), "reached": np.nan}


def _order(by: Criterion) -> Any:
    """Return the key that sorts rows from the best, equal ones by name."""
    sign = 1 if by.outcome is None else -1
    return lambda row: (
        sign * row["value"],
        -row["reached"] / row["runs"] if by.outcome is None else 0,
        natural(row["series"]),
    )


def _against(contrast: Contrast, by: Criterion, span: Window) -> Row:
    """Test one arm against the best one; `worse` is the direction of the difference."""
    ours, theirs = (by.values(side, span) for side in (contrast.ours, contrast.theirs))
    about = {"design": "paired" if contrast.paired else "unpaired", "n": len(ours)}
    about["baseline_n"] = len(theirs)
    if np.isfinite([*ours, *theirs]).all():
        test = t_test(ours - theirs) if contrast.paired else t_test(ours, theirs)
        worse = test.estimate > 0 if by.outcome is None else test.estimate < 0
        numbers = {name: getattr(test, name) for name in ("estimate", "low", "high", "p")}
        return about | numbers | {"worse": worse}
    return about | _by_order(ours, theirs, contrast.paired)


def _by_order(ours: Floats, theirs: Floats, paired: bool) -> Row:
    """Test times of which some are infinite, by which are later; two infinite ones are equal.

    There is no p where no order of so few runs could settle anything.
    """
    if paired:
        difference = (ours > theirs).astype(float) - (ours < theirs)
        test, later = sign_flip(difference), difference.sum()
    else:
        ranks = pd.Series([*ours, *theirs]).rank().to_numpy().astype(np.float64)
        one, other = ranks[: len(ours)], ranks[len(ours) :]
        test, later = permutation(one, other), one.mean() - other.mean()
    return {"p": test.p if test.smallest <= ALPHA else np.nan, "worse": bool(later > 0)}


def _found(place: int, p: float, worse: object) -> str:
    """Say what the test against the best found."""
    if place == 1:
        return BEST
    if np.isnan(p):
        return UNTESTED
    return WORSE if worse and p <= ALPHA else NOISE
