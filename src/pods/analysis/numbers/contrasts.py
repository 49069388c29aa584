"""Choose which runs are compared, and how: arms, their baseline, pairs over seeds.

Shapes: S = runs of an arm, G = grid points.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.loading.filter import default_baseline, resolve
from pods.analysis.loading.study import Study
from pods.analysis.numbers.curves import time_grid
from pods.analysis.numbers.outcomes import RunCurve, on_grid, run_curves
from pods.analysis.numbers.statistics import Floats, Indices, TTest, resamples, t_test


@dataclass(frozen=True)
class Contrast:
    """The runs of one arm against those of its baseline, one beside the other where paired."""

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
        return t_test(arm - baseline) if self.paired else t_test(arm, baseline)

    def resampled(self, draws: int, seed: int) -> list[Indices]:
        """Draw (D, S) whole runs of both sides, or pairs of them."""
        return resamples([len(self.arm), len(self.baseline)][: 2 - self.paired], draws, seed)


def choose_arms(study: Study, words: Sequence[str]) -> dict[str, list[RunCurve]]:
    """Return the complete runs of the arms that are compared: the named ones, or all with any.

    A single named arm is compared with the default baseline.

    `ValueError`: an arm is unknown, ambiguous, named twice or without a complete run, or there
    are fewer than two arms.
    """
    names = [resolve(study, word) for word in words]
    if len(names) == 1 and (default := default_baseline(study)) is not None:
        names.append(default)
    if len(set(names)) < len(names) or len(names) == 1:
        present = " | ".join(dict.fromkeys(study.runs.series))
        raise ValueError(f"arms={' '.join(words)}: must be two or more different ones of {present}")
    curves = {name: run_curves(study, name) for name in names or dict.fromkeys(study.runs.series)}
    needed = names or [name for name in curves if name == study.baseline]
    empty = [name for name in needed if not curves[name]]
    if empty:
        raise ValueError(f"arm {empty[0]!r} has no complete run")
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
    of_arm, of_baseline = ({curve.seed: curve for curve in runs} for runs in (arm, baseline))
    shared = sorted(of_arm.keys() & of_baseline.keys())
    if not seeded or len(shared) < 2:
        return Contrast(arm, baseline, False, [])
    left_out = [
        f"{curve.series} seed {curve.seed}: {partners[0].series} has no such seed"
        for runs, partners in ((arm, baseline), (baseline, arm))
        for curve in runs
        if curve.seed not in shared
    ]
    pairs = [of_arm[seed] for seed in shared], [of_baseline[seed] for seed in shared]
    return Contrast(*pairs, True, left_out)


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
    name, grid = default_baseline(study), time_grid(study)
    baseline = [] if name is None else run_curves(study, name)
    rows = []
    for series in study.runs.series.unique():
        arm = run_curves(study, series)
        measured = all(np.isfinite(run.accuracy).any() for run in (*arm, *baseline))
        if series == name or min(len(arm), len(baseline)) < 2 or not measured:
            continue
        contrast = contrast_of(arm, baseline, study.seeded)
        about = (series, name, contrast.design, len(contrast.arm), len(contrast.baseline))
        sides = (on_grid(side, grid).T for side in (contrast.arm, contrast.baseline))
        for at, one, other in zip(grid, *sides, strict=True):
            test = contrast.test(one, other)
            rows.append((*about, at, test.estimate, test.low, test.high))
    names = ["series", "baseline", "design", "runs", "baseline_runs", study.x]
    return pd.DataFrame(rows, columns=[*names, "estimate", "low", "high"])
