"""Compare arms at an equal budget: which one is higher, by how much, and how certain that is.

A contrast is one arm against another one, its baseline. Where the seed decides prompts and draws,
runs are paired over the seeds that both arms have; else they are two samples. The p values of all
contrasts for one outcome are a family and adjusted by Holm's method.

More than four arms are also ranked, since every two of so many would be a list that nobody reads
(nine arms have 36 pairs): each is compared with the baseline, or with the best where there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from pods.analysis.compare.speedup import Row, default_targets, measured_targets, speedups
from pods.analysis.loading.filter import default_baseline
from pods.analysis.loading.study import Study
from pods.analysis.numbers import outcomes, statistics
from pods.analysis.numbers.contrasts import Contrast, choose_arms, choose_pairs, contrast_of
from pods.analysis.numbers.outcomes import OUTCOMES, RunCurve, Window

DRAWS = 10_000
SEED = 0  # of the resampling, whose draws for a contrast do not depend on other contrasts
MANY = 4  # more arms than this are ranked
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
    """One row per (contrast, outcome), see `_tests`; p_holm and exact_p_holm are adjusted within
    the outcome."""
    speedups: pd.DataFrame
    """One row per (contrast, target), see `speedup.speedups`; its seconds are named as `unit`."""
    left_out: list[str]  # complete runs without a partner, each with the reason
    given_targets: bool  # the targets were chosen by the user
    draws: int  # number of bootstrap resamples
    ranking: Ranking | None  # of more than four arms, or if it was asked for

    @property
    def unit(self) -> str:
        """What the window and the way to a target are measured in: seconds, or the chosen x."""
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
        by: rank the arms, by `mean` or `final` accuracy; default: by mean, if more than four.

    `ValueError`: see `choose_arms`; or a target is no accuracy.
    """
    curves = choose_arms(study, arms)
    span = outcomes.window((curve for runs in curves.values() for curve in runs), study.until)
    many = len(curves) > MANY
    ranking = rank_arms(curves, by or "mean", span, study.seeded) if many or by else None
    baseline = default_baseline(study) or (ranking.best if many and ranking else None)
    pairs = choose_pairs(list(curves), bool(arms), baseline)
    contrasts = [contrast_of(curves[arm], curves[other], study.seeded) for arm, other in pairs]
    return Comparison(
        study=study,
        window=span,
        arms=_arm_table(study, curves, span),
        contrasts=with_holm(pd.DataFrame([row for of in contrasts for row in _tests(of, span)])),
        speedups=_speedup_table(study, contrasts, curves, targets, span, draws),
        left_out=list(dict.fromkeys(line for each in contrasts for line in each.left_out)),
        given_targets=targets is not None,
        draws=draws,
        ranking=ranking,
    )


def rank_arms(
    arms: Mapping[str, Sequence[RunCurve]], by: str, span: Window, seeded: bool
) -> Ranking:
    """Rank arms by what their runs reach in the window of all of them.

    Each other arm is tested against the one that came out best, as contrasts are. It is `worse`
    only where the adjusted p is at most 0.05; what is left is `within noise`, so that the search
    for the best (n, m) ends with a set and not with the luckiest of many.

    `ValueError`: there is no such criterion.
    """
    if by not in CRITERIA:
        raise ValueError(f"by={by}: must be {' or '.join(CRITERIA)}")
    measure = getattr(outcomes, CRITERIA[by])
    values = {name: np.array([measure(run, span) for run in runs]) for name, runs in arms.items()}
    best, *others = sorted(arms, key=lambda name: -values[name].mean())  # stable
    rows = []
    for place, name in enumerate([best, *others], 1):
        own = statistics.t_test(values[name])
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
    table["p_holm"] = statistics.holm(table.p.to_numpy(float))
    found = [table["rank"] == 1, table.p_holm.isna(), table.p_holm <= statistics.ALPHA]
    table["against_best"] = np.select(found, [BEST, UNTESTED, WORSE], NOISE)
    return Ranking(CRITERIA[by], table)


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
            raise ValueError(f"target={target:g}: must be an accuracy above 0 and at most 1")
    levels = default_targets(curves.values(), span) if targets is None else sorted({*targets})
    rows = []
    for contrast in contrasts:
        sides, indices = (contrast.arm, contrast.baseline), contrast.resampled(draws, SEED)
        timed = measured_targets(sides, levels, span) if targets is None else levels
        found = speedups(*sides, timed, span, (indices[0], indices[-1]))
        rows += [contrast.names | row for row in found]
    x = study.x.removeprefix("train_")
    return pd.DataFrame(rows).rename(columns={"seconds": x, "baseline_seconds": f"baseline_{x}"})


def with_holm(tests: pd.DataFrame) -> pd.DataFrame:
    """Add to a table of tests Holm's p_holm and exact_p_holm, over the contrasts of an outcome."""
    for column in ("p", "exact_p"):
        family = tests.groupby("outcome")[column]
        tests[f"{column}_holm"] = family.transform(lambda p: statistics.holm(p.to_numpy(float)))
    return tests


def _tests(contrast: Contrast, span: Window) -> Iterator[Row]:
    """Yield one row per outcome: estimate = arm - baseline, its t interval and tests."""
    for outcome in OUTCOMES:
        measure = getattr(outcomes, outcome)
        arm = np.array([measure(curve, span) for curve in contrast.arm])
        baseline = np.array([measure(curve, span) for curve in contrast.baseline])
        exact = statistics.ExactTest(np.nan, np.nan, np.nan)
        if min(len(arm), len(baseline)) > 1 and np.isfinite([*arm, *baseline]).all():
            exact = (
                statistics.sign_flip(arm - baseline)
                if contrast.paired
                else statistics.permutation(arm, baseline)
            )
        yield contrast.names | {
            "outcome": outcome,
            "design": contrast.design,
            "runs": len(arm),
            "baseline_runs": len(baseline),
            "left_out": len(contrast.left_out),
            "mean": arm.mean(),
            "baseline_mean": baseline.mean(),
            **asdict(contrast.test(arm, baseline)),
            "higher": (arm > baseline).sum() if contrast.paired else np.nan,
            "lower": (arm < baseline).sum() if contrast.paired else np.nan,
            **{f"exact_{name}": value for name, value in asdict(exact).items()},
        }


def _arm_table(study: Study, arms: Mapping[str, list[RunCurve]], span: Window) -> pd.DataFrame:
    rows = []
    for series, curves in arms.items():
        total = int((study.runs.series == series).sum())
        row: Row = {"series": series, "runs": len(curves), "left_out": total - len(curves)}
        for name in OUTCOMES:
            measure = getattr(outcomes, name)
            row |= statistics.spread(name, np.array([measure(curve, span) for curve in curves]))
        rows.append(row)
    return pd.DataFrame(rows)
