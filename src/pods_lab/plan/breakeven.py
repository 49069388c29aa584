"""Break-even of two arms: the steps that the expensive one saves, and how much more a step costs.

The number of steps is that of `pods compare`: the steps ratio to each accuracy that it times. The
expensive arm is faster where speed-up = steps ratio / (its seconds per step / the cheaper arm's) is
above 1.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pods.analysis.compare.speedup import Row, default_targets, measured_targets, speedups
from pods.analysis.loading.study import Study
from pods.analysis.numbers.contrasts import contrast_of
from pods.analysis.numbers.outcomes import RunCurve, mean_curve, run_curves, window
from pods.analysis.numbers.statistics import mean_and_stderr
from pods_lab.plan.model import CostModel, Pair, predict

LEAST_RUNS = 3  # complete runs per arm
LEAST_RISE = 0.02  # in accuracy above the start; noise alone crosses lower targets
MARGIN = 1.05  # a smaller speed-up is no verdict
DRAWS = 10_000  # as in `pods compare`
COSTS = ["expensive", "cheaper", "seconds", "cheaper_seconds", "cost", "cost_stderr", "outside"]
TIMES = ["target", "steps_ratio", "speedup", "low", "high", "winner", "verdict"]


@dataclass(frozen=True)
class Arm:
    """The cost of one arm's steps."""

    name: str  # of its series, or n→m without runs
    seconds: float  # per step, a mean over runs, or as predicted without runs
    stderr: float  # of that mean, NaN with fewer than two runs
    phases: dict[str, float]  # mean seconds of each
    runs: frozenset[str] = frozenset()  # that were measured
    outside: bool = False  # the prediction lies outside the measured range


def break_even(model: CostModel, study: Study | None, nm: Sequence[Pair]) -> pd.DataFrame:
    """Pair each (n, m) with m→m (fewer rollouts) and n→n (all of them trained on), where m < n.

    Sizes without steady runs are predicted, and left out where the fit does not identify them.
    The study has the accuracies of the runs, if there are any.

    Returns:
        One row per pair and accuracy that both arms reach, or one row per pair without any:
        expensive, cheaper (names), seconds and cheaper_seconds (per step), cost (their ratio),
        cost_stderr, outside (the measured range), target (accuracy), steps_ratio (median steps of
        the cheaper arm / those of the expensive one), speedup (steps ratio / cost), low and high
        (the 95 % interval of the speed-up in seconds, by `pods compare`), winner (empty:
        undecided), verdict (of all targets), and by phase extra/PHASE, the extra seconds of the
        expensive arm.
    """
    rows: list[Row] = []
    for n, m in nm:
        if m < n:
            arms = _arms(model, n, m)
            rows += _rows(study, arms, _arms(model, m, m))
            rows += _rows(study, arms, _arms(model, n, n))
    extra = [f"extra/{phase}" for phase in model.phases]
    return pd.DataFrame(rows, columns=COSTS + TIMES + extra)


def _rows(study: Study | None, arms: Sequence[Arm], baselines: Sequence[Arm]) -> list[Row]:
    """Weigh each arm against each baseline, if the costs of both are known."""
    rows = []
    for arm, baseline in itertools.product(arms, baselines):
        if not math.isnan(arm.seconds + baseline.seconds):
            rows += weigh(study, arm, baseline)
    return rows


def _arms(model: CostModel, n: int, m: int) -> list[Arm]:
    """Return the arms of these sizes that were run, or the predicted one if there are none."""
    steady = model.steady
    arms = []
    for series, runs in steady[(steady.n == n) & (steady.m == m)].groupby("series", sort=False):
        mean, stderr = mean_and_stderr(runs.seconds.to_numpy(float)[:, None])
        arm = Arm(
            name=str(series),
            seconds=float(mean[0]),
            stderr=float(stderr[0]),
            phases={phase: float(runs[f"seconds/{phase}"].mean()) for phase in model.phases},
            runs=frozenset(runs.run),
        )
        arms.append(arm)
    if arms:
        return arms

    step = predict(model, n, m)
    predicted = Arm(
        name=f"{n}→{m}",
        seconds=step.seconds,
        stderr=math.nan,
        phases=step.phases,
        outside=step.outside,
    )
    return [predicted]


def weigh(study: Study | None, arm: Arm, baseline: Arm) -> list[Row]:
    """Compare two arms' costs per step, and the steps that they need if both have runs."""
    expensive, cheaper = sorted((arm, baseline), key=lambda side: side.seconds, reverse=True)
    cost = expensive.seconds / cheaper.seconds
    error = math.hypot(expensive.stderr / expensive.seconds, cheaper.stderr / cheaper.seconds)
    costs = {
        "expensive": expensive.name,
        "cheaper": cheaper.name,
        "seconds": expensive.seconds,
        "cheaper_seconds": cheaper.seconds,
        "cost": cost,
        "cost_stderr": cost * error,
        "outside": expensive.outside or cheaper.outside,
    }
    for phase, seconds in expensive.phases.items():
        costs[f"extra/{phase}"] = seconds - cheaper.phases[phase]

    if not expensive.runs or not cheaper.runs:
        return [costs | {"verdict": "predicted, each phase by its own fit"}]
    timed = _time(study, expensive, cheaper)
    if timed.why_not:
        return [costs | {"verdict": f"not timed: {timed.why_not}"}]
    for row in timed.rows:
        row["speedup"] = row["steps_ratio"] / cost
        row["winner"] = _winner(row["speedup"], row["low"], row["high"])
    verdict = _verdict({row["winner"] for row in timed.rows})
    return [costs | row | {"verdict": verdict} for row in timed.rows]


def _winner(speedup: float, low: float, high: float) -> str:
    """Say which arm is faster to one accuracy, by a margin and by the interval; "": undecided."""
    if speedup > MARGIN and low > 1:
        return "expensive"
    if speedup < 1 / MARGIN and high < 1:
        return "cheaper"
    return ""


def _verdict(winners: set[str]) -> str:
    """Say which arm is faster, from who is so to each accuracy."""
    decided = sorted(winners - {""})
    if not decided:
        return "undecided"
    return decided[0] if len(decided) == 1 else "depends on the accuracy"


@dataclass(frozen=True)
class _Timed:
    """How two arms come to the accuracies that half of both arms' runs reach."""

    why_not: str = ""  # why there are no such accuracies
    rows: list[Row] = field(default_factory=list)
    """One per accuracy: target, steps_ratio, low, high."""


def _time(study: Study | None, expensive: Arm, cheaper: Arm) -> _Timed:
    """Compare the steps of two arms to each accuracy, over the runs that `pods compare` takes."""
    if study is None:
        return _Timed("no accuracies")
    contrast = contrast_of(_curves(study, expensive), _curves(study, cheaper), study.seeded)
    arms = [contrast.arm, contrast.baseline]
    if min(map(len, arms)) < LEAST_RUNS:
        return _Timed(f"an arm has fewer than {LEAST_RUNS} complete runs")

    span = window(contrast.arm + contrast.baseline, study.until)
    begin = np.array([span.start])
    least = LEAST_RISE + max(float(mean_curve(arm, begin)[0]) for arm in arms)
    levels = default_targets(arms, span)
    draws = contrast.resampled(DRAWS, seed=0)
    rows = []
    for row in speedups(contrast.arm, contrast.baseline, levels, span, draws):
        is_high = row["target"] >= least and measured_targets(arms, [row["target"]], span)
        if is_high and 0 < row["steps_ratio"] < math.inf:
            rows.append({name: row[name] for name in ("target", "steps_ratio", "low", "high")})
    if not rows:
        return _Timed("half of the runs of both arms reach no common accuracy")
    return _Timed(rows=rows)


def _curves(study: Study, arm: Arm) -> list[RunCurve]:
    return [curve for curve in run_curves(study, arm.name) if curve.run in arm.runs]
