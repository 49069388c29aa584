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
from pods.analysis.numbers.statistics import Indices, TTest, resamples, t_test, welch_test
from pods.types import Floats


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
    names = _named_arms(study, words)
    needed: list[str | None] = [study.baseline, *names]
    arms = {}
    for name in names or study.runs.series.unique():
        runs = run_curves(study, name)
        if runs:
            arms[name] = runs
        elif name in needed:
            raise ValueError(f"arm {name!r} has no complete run")

    if len(arms) < 2:
        there = " | ".join(arms) or "none"
        raise ValueError(f"a comparison needs two arms with complete runs; the study has: {there}")
    return arms


def _named_arms(study: Study, words: Sequence[str]) -> list[str]:
    """Return the curves that are named, and the default baseline of a single one."""
    names = [resolve(study, word) for word in words]
    if len(names) == 1:
        baseline = default_baseline(study)
        if baseline is not None:
            names.append(baseline)

    different = set(names)
    if len(different) < len(names) or len(names) == 1:
        present = " | ".join(study.runs.series.unique())
        raise ValueError(f"arms={' '.join(words)}: must be two or more different ones of {present}")
    return names


def choose_pairs(arms: Sequence[str], named: bool, baseline: str | None) -> list[tuple[str, str]]:
    """Choose the (arm, baseline) pairs: every two arms where there is no baseline.

    The first of several arms that were named is compared with each of the others.

    >>> choose_pairs(["a", "b", "c"], False, "b"), choose_pairs(["a", "b", "c"], True, "b")
    ([('a', 'b'), ('c', 'b')], [('a', 'b'), ('a', 'c')])
    """
    if named:
        return [(arms[0], name) for name in arms[1:]]
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
        left_out=_without_partner(arm, baseline) + _without_partner(baseline, arm),
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
        if series != name and _are_two(arm) and _are_two(baseline):
            contrast = contrast_of(arm, baseline, study.seeded)
            rows += _rows_on_grid(contrast, grid, study.x)
    return pd.DataFrame(rows, columns=columns)


def _are_two(runs: Sequence[RunCurve]) -> bool:
    """Whether there are two runs or more, each of which has a number."""
    measured = [np.isfinite(run.accuracy).any() for run in runs]
    return len(runs) >= 2 and all(measured)


def _rows_on_grid(contrast: Contrast, grid: Floats, x: str) -> list[dict[str, object]]:
    """Test a contrast at each of the (G,) grid points."""
    arm_values = on_grid(contrast.arm, grid)
    baseline_values = on_grid(contrast.baseline, grid)
    rows = []
    for place, amount in enumerate(grid):
        test = contrast.test(arm_values[:, place], baseline_values[:, place])
        row = {
            "series": contrast.arm[0].series,
            "baseline": contrast.baseline[0].series,
            "design": contrast.design,
            "runs": len(contrast.arm),
            "baseline_runs": len(contrast.baseline),
            x: amount,
            "estimate": test.estimate,
            "low": test.low,
            "high": test.high,
        }
        rows.append(row)
    return rows
