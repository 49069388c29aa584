"""Compare arms at an equal budget: which one is higher, by how much, and how certain that is.

A contrast is one arm against another one, its baseline. Where the seed decides prompts and draws,
runs are paired over the seeds that both arms have; else they are two samples. The p values of all
contrasts for one outcome are a family and adjusted by Holm's method.

More than four arms are also ranked, since every two of so many would be a list that nobody reads
(nine arms have 36 pairs): each is compared with the baseline, or with the best where there is none.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.compare.speedup import Row, default_targets, measured_targets, speedups
from pods.analysis.loading.arm_names import default_baseline
from pods.analysis.loading.study import Study
from pods.analysis.numbers.contrasts import Contrast, choose_arms, choose_pairs, contrast_of
from pods.analysis.numbers.outcomes import RunCurve, Window, values_of
from pods.analysis.numbers.span import window_of
from pods.analysis.numbers.statistics import holm, is_told_apart, spread, t_test

DRAWS = 10_000
SEED = 0  # of the resampling, whose draws for a contrast do not depend on other contrasts
MANY = 4  # more arms than this are ranked
BEST = "best"
BELOW = "below"
NOT_TOLD_APART = "not told apart"
CRITERIA = {"mean": "mean_accuracy", "final": "final_accuracy"}


@dataclass(frozen=True)
class Ranking:
    """Arms from the best to the worst."""

    outcome: str
    """What the arms are ranked by: a function of `pods.analysis.numbers.outcomes`."""
    table: pd.DataFrame
    """One row per arm: rank; series; runs; value and stderr (mean over runs); design of the
    test against the best; estimate (mean of arm - best), low and high (95 % t interval); p; p_holm;
    against_best (best, below or not told apart)."""

    @property
    def best(self) -> str:
        """The name of the best arm."""
        return str(self.table.series.iloc[0])

    def arms(self, against_best: str) -> list[str]:
        """Return the arms, from the best, of which the test against the best says this."""
        return [str(name) for name in self.table.series[self.table.against_best == against_best]]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison, as tables; accuracies are fractions."""

    study: Study
    window: Window
    """The training time, or span of the chosen x, in which outcomes are measured."""
    arms: pd.DataFrame
    """One row per arm: series, runs, left_out (runs that are not complete), and of each outcome
    over its runs mean, stderr and 95 % t interval."""
    contrasts: pd.DataFrame
    """One row per (contrast, outcome): series, baseline, outcome, design, runs, baseline_runs,
    left_out, mean, baseline_mean, the numbers of a `TTest`, higher and lower (pairs; NaN if
    unpaired), p_holm (adjusted over the contrasts of the outcome)."""
    speedups: pd.DataFrame
    """One row per (contrast, target), see `speedup.speedups`; its seconds are named as `unit`."""
    left_out: list[str]  # complete runs without a partner, each with the reason
    given_targets: bool  # the targets were chosen by the user
    draws: int  # number of bootstrap resamples
    ranking: Ranking | None  # of more than four arms, or if it was asked for

    @property
    def unit(self) -> str:
        """What the window and the way to a target are in: seconds, dollars, or the chosen x."""
        return self.study.x.removeprefix("train_")


def compare(
    study: Study,
    arms: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    draws: int = DRAWS,
    by: str | None = None,
) -> Comparison:
    """Compare the first arm with each of the others; without names, each arm with the GRPO arm.

    Without a GRPO arm it is every two arms, or of more than four arms each with the best one.

    Args:
        arms: labels of arms, rules, or names of curves ("pods", "pods 64->16").
        targets: accuracies to time; default: those of `default_targets` that are measured.
        draws: resamples for the intervals of speed-ups.
        by: rank the arms, by `mean` or `final` accuracy; default: by mean, if more than four.

    `ValueError`: see `choose_arms`; or a target or the criterion is not allowed.
    """
    if by is not None and by not in CRITERIA:
        raise ValueError(f"by={by}: must be {' or '.join(CRITERIA)}")
    curves = choose_arms(study, arms)
    span = window_of(study, list(itertools.chain.from_iterable(curves.values())))

    ranking = None
    baseline = default_baseline(study)
    if by or len(curves) > MANY:
        outcome = CRITERIA[by] if by else span.outcomes[0]
        ranking = rank_arms(curves, outcome, span, study.seeded)
        if baseline is None and len(curves) > MANY:
            baseline = ranking.best

    contrasts = []
    left_out: dict[str, None] = {}  # each line once
    for arm, reference in choose_pairs(list(curves), bool(arms), baseline):
        contrast = contrast_of(curves[arm], curves[reference], study.seeded)
        contrasts.append(contrast)
        left_out |= dict.fromkeys(contrast.left_out)

    return Comparison(
        study=study,
        window=span,
        arms=_arm_table(study, curves, span),
        contrasts=_contrast_table(contrasts, span),
        speedups=_speedup_table(study, contrasts, curves, targets, span, draws),
        left_out=list(left_out),
        given_targets=targets is not None,
        draws=draws,
        ranking=ranking,
    )


def rank_arms(
    arms: Mapping[str, Sequence[RunCurve]], outcome: str, span: Window, seeded: bool
) -> Ranking:
    """Rank arms by an outcome of their runs in the window of all of them.

    Each other arm is tested against the one that came out best, as contrasts are. It is `below`
    only if it is told apart; the others are `not told apart`, so that the search for the best
    (n, m) ends with a set and not with the luckiest of many. An arm of unknown value comes last.
    """
    values = {name: values_of(outcome, runs, span) for name, runs in arms.items()}
    means = pd.Series({name: runs.mean() for name, runs in values.items()})
    ranked = means.sort_values(ascending=False, kind="stable", na_position="last").index

    rows = []
    for rank, name in enumerate(ranked, 1):
        row: Row = {
            "rank": rank,
            "series": name,
            "runs": len(values[name]),
            "value": float(means[name]),
            "stderr": t_test(values[name]).stderr,
        }
        if rank > 1:
            contrast = contrast_of(list(arms[name]), list(arms[ranked[0]]), seeded)
            test = _test(contrast, outcome, span)
            for column in ("design", "estimate", "low", "high", "p"):
                row[column] = test[column]
        rows.append(row)

    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table.p.to_numpy(float))
    apart = table.p_holm.map(is_told_apart)
    table["against_best"] = np.where(apart, BELOW, NOT_TOLD_APART)
    table.loc[0, "against_best"] = BEST
    return Ranking(outcome, table)


def _speedup_table(
    study: Study,
    contrasts: Sequence[Contrast],
    curves: Mapping[str, Sequence[RunCurve]],
    targets: Sequence[float] | None,
    span: Window,
    draws: int,
) -> pd.DataFrame:
    """Time both sides of each contrast to the targets, and to the peak of its baseline."""
    for target in targets or ():
        if not 0 < target <= 1:
            allowed = "must be an accuracy above 0 and at most 1: 50 % is 0.5"
            raise ValueError(f"target={target:g}: {allowed}")
    levels = default_targets(curves.values(), span) if targets is None else sorted(set(targets))

    rows = []
    for contrast in contrasts:
        timed = levels
        if targets is None:
            timed = measured_targets([contrast.arm, contrast.baseline], levels, span)
        resampled = contrast.resampled(draws, SEED)
        for row in speedups(contrast.arm, contrast.baseline, timed, span, resampled):
            rows.append(contrast.names | row)

    x = study.x.removeprefix("train_")
    return pd.DataFrame(rows).rename(columns={"seconds": x, "baseline_seconds": f"baseline_{x}"})


def _contrast_table(contrasts: Sequence[Contrast], span: Window) -> pd.DataFrame:
    """Test each contrast in each outcome."""
    rows = []
    for contrast in contrasts:
        for outcome in span.outcomes:
            rows.append(_test(contrast, outcome, span))
    return with_holm(pd.DataFrame(rows))


def with_holm(tests: pd.DataFrame) -> pd.DataFrame:
    """Add to a table of tests Holm's p_holm, over the contrasts of an outcome."""
    families = tests.groupby("outcome").p
    adjusted = families.transform(lambda p: holm(p.to_numpy(float)))
    return tests.assign(p_holm=adjusted)


def _test(contrast: Contrast, outcome: str, span: Window) -> Row:
    """Make the row of one contrast and outcome: estimate = arm - baseline, and its test."""
    arm = values_of(outcome, contrast.arm, span)
    baseline = values_of(outcome, contrast.baseline, span)
    test = contrast.test(arm, baseline)
    return {
        "series": contrast.arm[0].series,
        "baseline": contrast.baseline[0].series,
        "outcome": outcome,
        "design": contrast.design,
        "runs": len(arm),
        "baseline_runs": len(baseline),
        "left_out": len(contrast.left_out),
        "mean": arm.mean(),
        "baseline_mean": baseline.mean(),
        "estimate": test.estimate,
        "stderr": test.stderr,
        "df": test.df,
        "low": test.low,
        "high": test.high,
        "p": test.p,
        "higher": (arm > baseline).sum() if contrast.paired else np.nan,
        "lower": (arm < baseline).sum() if contrast.paired else np.nan,
    }


def _arm_table(study: Study, arms: Mapping[str, list[RunCurve]], span: Window) -> pd.DataFrame:
    rows = []
    for series, curves in arms.items():
        total = int((study.runs.series == series).sum())
        row: Row = {"series": series, "runs": len(curves), "left_out": total - len(curves)}
        for outcome in span.outcomes:
            row |= spread(outcome, values_of(outcome, curves, span))
        rows.append(row)
    return pd.DataFrame(rows)
