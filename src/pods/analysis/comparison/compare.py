"""Compare arms at an equal budget: which one is higher, by how much, and how certain that is.

A contrast is one arm against another one, its baseline. Where the seed decides prompts and draws,
runs are paired over the seeds that both arms have; else they are two samples. The p values of all
contrasts for one outcome are a family and adjusted by Holm's method.

More than four arms are also ranked, since every two of so many would be a list that nobody reads
(nine arms have 36 pairs): each is compared with the baseline, or with the best where there is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis import outcomes
from pods.analysis.comparison.contrasts import (
    Contrast,
    choose_arms,
    choose_pairs,
    contrast_of,
    default_baseline,
)
from pods.analysis.comparison.ranking import MEAN, Ranking, natural, rank_arms
from pods.analysis.comparison.speedup import default_targets, measured_targets, speedups
from pods.analysis.outcomes import OUTCOMES, ROUNDING, RunCurve, Window
from pods.analysis.resampling import (
    ExactTest,
    Indices,
    percentile_interval,
    permutation,
    resamples,
    sign_flip,
)
from pods.analysis.statistics import detectable, holm, runs_needed, spread, t_test
from pods.analysis.study import Study

DRAWS = 10_000
MANY = 4  # more arms than this are ranked
Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison, as tables; accuracies are fractions."""

    study: Study
    window: Window
    """The training time, or span of the chosen x, in which outcomes are measured."""
    arms: pd.DataFrame
    """One row per arm: series, n, left_out, and mean, stderr, 95 % t interval and interquartile
    mean of each outcome over its runs; plain_mean: the mean of the evaluations after time 0."""
    contrasts: pd.DataFrame
    """One row per (contrast, outcome), see `_tests`; p_holm and exact_p_holm are adjusted within
    the outcome."""
    speedups: pd.DataFrame
    """One row per (contrast, target), see `speedup.speedups`; its seconds are named as `unit`."""
    questions: pd.DataFrame
    """One row per contrast, see `question_differences`."""
    left_out: list[str]
    """Runs that were not used, each with the reason."""
    given_targets: bool
    """The targets were chosen by the user."""
    draws: int
    """Number of bootstrap resamples."""
    seed: int
    """Seed of the resampling."""
    ranking: Ranking | None = None
    """The arms by mean accuracy, if there are more than four."""

    @property
    def unit(self) -> str:
        """What the window and the way to a target are measured in: seconds, or the chosen x."""
        return _unit(self.study)


def compare(
    study: Study,
    arms: Sequence[str] | None = None,
    targets: Sequence[float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    all_pairs: bool = False,
) -> Comparison:
    """Compare the first arm with each of the others; without names, each arm with the GRPO arm.

    Without a GRPO arm it is every two arms, or of more than four arms each with the best one.

    Args:
        study: a loaded study.
        arms: labels of arms, rules, or names of curves ("pods", "pods 64->16"); see
            `choose_arms`.
        targets: accuracies to time; default: those of `default_targets` that are measured.
        draws: number of bootstrap resamples.
        seed: of the bootstrap; the draws of a contrast do not depend on other contrasts.
        all_pairs: compare every two arms.

    Raises:
        ValueError: see `choose_arms`; or a target is no accuracy.
    """
    for target in targets or ():
        if not 0 < target <= 1:
            raise ValueError(f"target={target:g}: must be an accuracy above 0 and at most 1")
    curves, left_out = choose_arms(study, arms or ())
    span = outcomes.window((curve for arm in curves.values() for curve in arm), study.until)
    ranking = rank_arms(curves, MEAN, span, study.seeded) if len(curves) > MANY else None
    if ranking is not None and not arms:
        curves = {name: curves[name] for name in sorted(curves, key=natural)}
    reference = default_baseline(study) or (ranking.best if ranking else None)
    if all_pairs:
        pairs = choose_pairs(list(curves), named=False, baseline=None)
    else:
        pairs = choose_pairs(list(curves), bool(arms), reference)
    levels = default_targets(curves.values(), span) if targets is None else sorted({*targets})
    tests, speed, questions = [], [], []
    for arm, baseline in pairs:
        contrast = contrast_of(curves[arm], curves[baseline], study.seeded)
        sides = (contrast.ours, contrast.theirs)
        sizes = [len(side) for side in (sides[:1] if contrast.paired else sides)]
        indices = resamples(sizes, draws, seed)
        tests += [contrast.names | row for row in _tests(contrast, span, indices, seed)]
        timed = measured_targets(sides, levels, span) if targets is None else levels
        rows = speedups(*sides, timed, span, (indices[0], indices[-1]))
        speed += [contrast.names | row for row in rows]
        answers = question_differences(contrast, study.questions)
        questions += [contrast.names | row for row in answers]
        left_out += contrast.left_out
    return Comparison(
        study=study,
        window=span,
        arms=_arm_table(study, curves, span),
        contrasts=_adjusted(pd.DataFrame(tests)),
        speedups=pd.DataFrame(speed).rename(
            columns={"seconds": _unit(study), "baseline_seconds": f"baseline_{_unit(study)}"}
        ),
        questions=pd.DataFrame(questions),
        left_out=left_out,
        given_targets=targets is not None,
        draws=draws,
        seed=seed,
        ranking=ranking,
    )


def _unit(study: Study) -> str:
    return "seconds" if study.x == "train_seconds" else study.x


def _tests(
    contrast: Contrast, span: Window, indices: Sequence[Indices], seed: int
) -> Iterator[Row]:
    """Yield one row per outcome: estimate = arm - baseline, its intervals, tests and power."""
    for outcome in OUTCOMES:
        measure = getattr(outcomes, outcome)
        ours, theirs = (
            np.array([measure(curve, span) for curve in side])
            for side in (contrast.ours, contrast.theirs)
        )
        samples = (ours - theirs,) if contrast.paired else (ours, theirs)
        enough = min(map(len, samples)) > 1
        test = t_test(*samples)
        exact = ExactTest(np.nan, np.nan, np.nan)
        if enough:
            exact = (
                sign_flip(ours - theirs, seed)
                if contrast.paired
                else permutation(ours, theirs, seed)
            )
        low = high = np.nan
        if not np.isnan(test.p):  # without spread there is no interval of any kind
            means = [x[drawn].mean(1) for x, drawn in zip(samples, indices, strict=True)]
            low, high = percentile_interval(means[0] if contrast.paired else means[0] - means[1])
        yield {
            "outcome": outcome,
            "design": "paired" if contrast.paired else "unpaired",
            "n": len(ours),
            "baseline_n": len(theirs),
            "left_out": len(contrast.left_out),
            "mean": ours.mean(),
            "baseline_mean": theirs.mean(),
            **asdict(test),
            "bootstrap_low": low,
            "bootstrap_high": high,
            "higher": (ours > theirs).sum() if contrast.paired else np.nan,
            "lower": (ours < theirs).sum() if contrast.paired else np.nan,
            **{f"exact_{name}": value for name, value in asdict(exact).items()},
            "runs_needed": runs_needed(*samples) if enough else np.nan,
            "detectable": detectable(test.stderr, test.df),
        }


def question_differences(contrast: Contrast, answers: pd.DataFrame) -> Iterator[Row]:
    """Compare the last evaluations question by question, given these runs.

    The error is over questions (Miller 2024, arXiv:2411.00640, section 4.2): it says how much the
    difference would vary on other questions of the kind, and nothing about other seeds.
    """
    sides = (contrast.ours, contrast.theirs)
    ours, theirs = (
        answers[answers.run.isin([curve.run for curve in side])].groupby("question").correct.mean()
        for side in sides
    )
    difference = (ours - theirs).dropna()
    if len(difference) < 2:
        return
    test = t_test(difference.to_numpy(float))
    unequal = difference[difference.abs() > ROUNDING]
    yield {
        "questions": len(difference),
        "unshared": len(ours.index.symmetric_difference(theirs.index)),
        "estimate": test.estimate,
        "stderr": test.stderr,
        "low": test.low,
        "high": test.high,
        "better": (unequal > 0).sum(),
        "worse": (unequal < 0).sum(),
        "equal": len(difference) - len(unequal),
    }


def _adjusted(tests: pd.DataFrame) -> pd.DataFrame:
    """Add Holm's p over the contrasts of each outcome."""
    for column in ("p", "exact_p"):
        family = tests.groupby("outcome")[column]
        tests[f"{column}_holm"] = family.transform(lambda p: holm(p.to_numpy(float)))
    return tests


def _arm_table(study: Study, arms: dict[str, list[RunCurve]], span: Window) -> pd.DataFrame:
    rows = []
    for series, curves in arms.items():
        total = int((study.runs.series == series).sum())
        row: Row = {"series": series, "n": len(curves), "left_out": total - len(curves)}
        for name in (*OUTCOMES, "plain_mean"):
            measure = getattr(outcomes, name)
            row |= spread(name, np.array([measure(curve, span) for curve in curves]))
        rows.append(row)
    return pd.DataFrame(rows)
