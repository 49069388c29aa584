"""Choose which runs are compared, and how: arms, their baseline, pairs over seeds.

Shapes: S = runs of an arm, G = grid points.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.loading.arm_names import default_baseline, resolve
from pods.analysis.loading.study import Study
from pods.analysis.numbers.curves import time_grid
from pods.analysis.numbers.outcomes import RunCurve, on_grid, run_curves
from pods.analysis.numbers.statistics import Floats, Indices, TTest, resamples, t_test, welch_test


@dataclass(frozen=True)
class Contrast:
    """The runs of one arm against those of its baseline, in the order of their pairs if paired."""

    arm: list[RunCurve]
    baseline: list[RunCurve]
    paired: bool
    left_out: list[str]
    """Runs without a partner, each with the reason."""

    @property
    def names(self) -> dict[str, str]:
        """The columns that identify the contrast in a table."""
        return {"series": self.arm[0].series, "baseline": self.baseline[0].series}

    @property
    def design(self) -> str:
        """Whether runs are paired, as tables say it."""
        return "paired" if self.paired else "unpaired"

    def test(self, arm: Floats, baseline: Floats) -> TTest:
        """Test the difference of both sides' (S,) outcomes: the paired t test, or Welch's."""
        if self.paired:
            return t_test(arm - baseline)
        return welch_test(arm, baseline)

    def resampled(self, draws: int, seed: int) -> tuple[Indices, Indices]:
        """Draw (D, S) whole runs of both sides, or pairs of them."""
        if self.paired:
            [pairs] = resamples([len(self.arm)], draws, seed)
            return pairs, pairs
        arm, baseline = resamples([len(self.arm), len(self.baseline)], draws, seed)
        return arm, baseline


def choose_arms(study: Study, words: Sequence[str]) -> dict[str, list[RunCurve]]:
    """Return the complete runs of the arms that are compared: the named ones, or all with any.

    A single named arm is compared with the default baseline.

    `ValueError`: an arm is unknown, ambiguous, named twice or without a complete run, or there
    are fewer than two arms.
    """
    names = [resolve(study, word) for word in words]
    if len(names) == 1:
        baseline = default_baseline(study)
        if baseline is not None:
            names.append(baseline)
    if len(set(names)) < len(names) or len(names) == 1:
        present = " | ".join(dict.fromkeys(study.runs.series))
        raise ValueError(f"arms={' '.join(words)}: must be two or more different ones of {present}")

    candidates = names or list(dict.fromkeys(study.runs.series))
    curves = {name: run_curves(study, name) for name in candidates}
    needed = names or [name for name in candidates if name == study.baseline]
    for name in needed:
        if not curves[name]:
            raise ValueError(f"arm {name!r} has no complete run")

    arms = {name: runs for name, runs in curves.items() if runs}
    if len(arms) < 2:
        there = " | ".join(arms) or "none"
        raise ValueError(f"a comparison needs two arms with complete runs; the study has: {there}")
    return arms


def choose_pairs(arms: Sequence[str], named: bool, baseline: str | None) -> list[tuple[str, str]]:
    """Choose the (arm, baseline) pairs: every two arms where there is no baseline.

    The first of several arms that were named is compared with each of the others.

    >>> choose_pairs(["a", "b", "c"], False, "b"), choose_pairs(["a", "b", "c"], True, "b")
    ([('a', 'b'), ('c', 'b')], [('a', 'b'), ('a', 'c')])
    """
    if named:
        return [(arms[0], other) for other in arms[1:]]
    if baseline is None:
        return list(itertools.combinations(arms, 2))
    return [(name, baseline) for name in arms if name != baseline]


def contrast_of(arm: list[RunCurve], baseline: list[RunCurve], seeded: bool) -> Contrast:
    """Pair runs over shared seeds, if seeds mean anything and at least two are shared."""
    arm_by_seed = {curve.seed: curve for curve in arm}
    baseline_by_seed = {curve.seed: curve for curve in baseline}
    shared = sorted(arm_by_seed.keys() & baseline_by_seed.keys())
    if not seeded or len(shared) < 2:
        return Contrast(arm, baseline, paired=False, left_out=[])

    return Contrast(
        arm=[arm_by_seed[seed] for seed in shared],
        baseline=[baseline_by_seed[seed] for seed in shared],
        paired=True,
        left_out=[*_without_partner(arm, baseline), *_without_partner(baseline, arm)],
    )


def _without_partner(runs: list[RunCurve], partners: list[RunCurve]) -> list[str]:
    seeds = {partner.seed for partner in partners}
    lines = []
    for run in runs:
        if run.seed not in seeds:
            lines.append(f"{run.series} seed {run.seed}: {partners[0].series} has no such seed")
    return lines


def differences(study: Study) -> pd.DataFrame:
    """Compare each arm with the baseline at each grid point, over their complete runs.

    Runs are paired over shared seeds where seeds decide prompts and draws, else the interval is
    that of Welch's test, as in `compare`. It holds for one point and is not adjusted for the many.

    Returns:
        One row per (arm, grid point), for arms that have two runs as the baseline has: series,
        baseline, design, runs, baseline_runs, train_seconds (or the chosen x), estimate (arm -
        baseline, a fraction), low and high (95 % t interval; NaN without spread). No row without a
        baseline.
    """
    columns = ["series", "baseline", "design", "runs", "baseline_runs"]
    columns += [study.x, "estimate", "low", "high"]
    name = default_baseline(study)
    if name is None:
        return pd.DataFrame(columns=columns)

    grid = time_grid(study)
    baseline = run_curves(study, name)
    rows = []
    for series in study.runs.series.unique():
        arm = run_curves(study, series)
        measured = all(np.isfinite(run.accuracy).any() for run in [*arm, *baseline])
        if series == name or min(len(arm), len(baseline)) < 2 or not measured:
            continue

        contrast = contrast_of(arm, baseline, study.seeded)
        arm_values = on_grid(contrast.arm, grid)
        baseline_values = on_grid(contrast.baseline, grid)
        for place, x in enumerate(grid):
            test = contrast.test(arm_values[:, place], baseline_values[:, place])
            row = {
                "series": series,
                "baseline": name,
                "design": contrast.design,
                "runs": len(contrast.arm),
                "baseline_runs": len(contrast.baseline),
                study.x: x,
                "estimate": test.estimate,
                "low": test.low,
                "high": test.high,
            }
            rows.append(row)
    return pd.DataFrame(rows, columns=columns)
