"""`pods compare`: which arm is higher at an equal budget, by how much, and how sure that is.

A contrast is one arm against another, its baseline. Where the seed decides prompts and draws, runs
are paired over the seeds that both arms have; else they are two samples. Claims are tested as
families: every contrast's p for one outcome, adjusted by Holm.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis import outcomes, power, resampling
from pods.analysis.comparison.contrasts import Contrast, arms_of, contrast_of
from pods.analysis.comparison.questions import question_differences
from pods.analysis.comparison.speedup import Row, default_targets, speedups, timed
from pods.analysis.load import Study
from pods.analysis.outcomes import OUTCOMES, RunCurve, Window
from pods.analysis.statistics import holm, paired_t, spread, welch_t

DRAWS = 10_000


@dataclass(frozen=True)
class Comparison:
    """Everything that `pods compare` found, as tables; accuracies are fractions."""

    study: Study
    window: Window
    """Outcomes are measured in it."""
    arms: pd.DataFrame
    """A row an arm: series, n, left_out, and mean, stderr, 95 % t interval and interquartile mean
    of each outcome over its runs; plain_mean: of the evaluations after time 0."""
    contrasts: pd.DataFrame
    """A row a (contrast, outcome): `_tests`; p_holm and exact_p_holm within the outcome."""
    speedups: pd.DataFrame
    """A row a (contrast, target): `speedup.speedups`."""
    questions: pd.DataFrame
    """A row a contrast: `question_differences`."""
    left_out: list[str]
    """Runs that did not count, each with the reason."""
    given_targets: bool
    """The user chose the targets."""
    draws: int
    seed: int
    """Of resampling."""


def compare(
    study: Study,
    arms: Sequence[str] | None = None,
    targets: Sequence[float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare the first arm with each of the others, or every two where none is named.

    Args:
        study: read and checked.
        arms: each an arm's label, a rule, or the name of a curve ("pods", "pods 64->16").
        targets: accuracies to time; otherwise those of `default_targets` that are `timed`.
        draws: of the bootstrap.
        seed: of the bootstrap; a contrast has its own draws, whatever else is compared.

    Raises:
        ValueError: an arm is unknown, ambiguous, named twice, or has no complete run; fewer than
            two arms; a target is no accuracy.
    """
    for target in targets or ():
        if not 0 < target <= 1:
            raise ValueError(f"target={target:g}: an accuracy is above 0 and at most 1")
    runs, left_out = arms_of(study, arms)
    span = outcomes.window(curve for arm in runs for curve in arm)
    pairs = [(runs[0], other) for other in runs[1:]] if arms else itertools.combinations(runs, 2)
    contrasts = [contrast_of(ours, theirs, study.seeded) for ours, theirs in pairs]
    levels = default_targets(runs, span) if targets is None else sorted(set(targets))
    tests, speed, asked = [], [], []
    for contrast in contrasts:
        n = [len(contrast.ours)] if contrast.paired else [len(contrast.ours), len(contrast.theirs)]
        places = resampling.resamples(n, draws, seed)
        tests += [{**contrast.names, **row} for row in _tests(contrast, span, places, seed)]
        arms_here = (contrast.ours, contrast.theirs)
        wanted = timed(arms_here, levels, span) if targets is None else levels
        rows = speedups(*arms_here, wanted, span, (places[0], places[-1]))
        speed += [{**contrast.names, **row} for row in rows]
        asked += [
            {**contrast.names, **row} for row in question_differences(contrast, study.questions)
        ]
        left_out += contrast.left_out
    return Comparison(
        study, span, _table_of_arms(study, runs, span), _adjusted(pd.DataFrame(tests)),
        pd.DataFrame(speed), pd.DataFrame(asked), left_out, targets is not None, draws, seed,
    )  # fmt: skip


def _tests(
    contrast: Contrast, span: Window, places: Sequence[resampling.Indices], seed: int
) -> Iterator[Row]:
    """A row an outcome: estimate = arm - baseline, its intervals, tests and power."""
    for outcome in OUTCOMES:
        measure = getattr(outcomes, outcome)
        ours, theirs = (np.array([measure(curve, span) for curve in arm])
                        for arm in (contrast.ours, contrast.theirs))  # fmt: skip
        exact = boot = None
        enough = min(len(ours), len(theirs)) > 1
        if contrast.paired:
            pairs = ours - theirs
            test, needed = paired_t(pairs), power.pairs_needed(pairs)
            exact = resampling.sign_flip(pairs, seed)
            boot = pairs[places[0]].mean(1)
        else:
            test = welch_t(ours, theirs)
            needed = power.runs_needed(ours, theirs) if enough else np.nan
            if enough:
                exact = resampling.permutation(ours, theirs, seed)
                boot = ours[places[0]].mean(1) - theirs[places[1]].mean(1)
        low = high = np.nan
        if boot is not None and not np.isnan(test.p):  # no spread: no interval of any kind
            low, high = resampling.percentile_interval(boot)
        yield {
            "outcome": outcome,
            "design": "paired" if contrast.paired else "unpaired",
            "n": len(ours),
            "baseline_n": len(theirs),
            "left_out": len(contrast.left_out),
            "mean": ours.mean(),
            "baseline_mean": theirs.mean(),
            "estimate": test.estimate,
            "stderr": test.stderr,
            "df": test.df,
            "low": test.low,
            "high": test.high,
            "bootstrap_low": low,
            "bootstrap_high": high,
            "higher": (ours > theirs).sum() if contrast.paired else np.nan,
            "lower": (ours < theirs).sum() if contrast.paired else np.nan,
            "p": test.p,
            "exact_p": exact.p if exact else np.nan,
            "exact_smallest": exact.smallest if exact else np.nan,
            "exact_drawn": exact.drawn if exact else np.nan,
            "runs_needed": needed,
            "detectable": power.detectable(test.stderr, test.df),
        }


def _adjusted(tests: pd.DataFrame) -> pd.DataFrame:
    """Add Holm's p over the contrasts of each outcome."""
    for column in ("p", "exact_p"):
        family = tests.groupby("outcome")[column]
        tests[f"{column}_holm"] = family.transform(lambda p: holm(p.to_numpy(float)))
    return tests


def _table_of_arms(study: Study, arms: Sequence[Sequence[RunCurve]], span: Window) -> pd.DataFrame:
    rows = []
    for arm in arms:
        total = int((study.runs.series == arm[0].series).sum())
        row: Row = {"series": arm[0].series, "n": len(arm), "left_out": total - len(arm)}
        for name in (*OUTCOMES, "plain_mean"):
            measure = getattr(outcomes, name)
            row |= spread(name, np.array([measure(curve, span) for curve in arm]))
        rows.append(row)
    return pd.DataFrame(rows)
