"""Break-even of two arms: the steps that the expensive one saves, and how much more a step costs.

The number of steps is that of `pods compare`: the steps ratio to each accuracy that it times. The
expensive arm is faster where speed-up = steps ratio / (its seconds per step / the cheaper arm's) is
above 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.compare.speedup import Row, default_targets, measured_targets, speedups
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import mean_curve, run_curves, window
from pods.analysis.numbers.statistics import mean_and_stderr, resamples
from pods_lab.plan.model import CostModel, Pair, predict

LEAST_RUNS = 3  # complete runs per arm
LEAST_RISE = 0.02  # in accuracy above the start; noise alone crosses lower targets
MARGIN = 1.05  # a smaller speed-up is no verdict
DRAWS = 10_000  # as in `pods compare`
COLUMNS = (
    *("expensive", "cheaper", "seconds", "cheaper_seconds", "cost", "cost_stderr", "outside"),
    *("target", "steps_ratio", "speedup", "low", "high", "winner", "verdict"),
)


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
    rows = [
        row
        for n, m in nm
        for size in ((m, n) if m < n else ())
        for one in _arms(model, n, m)
        for other in _arms(model, size, size)
        if not math.isnan(one.seconds + other.seconds)
        for row in weigh(study, one, other)
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, *(f"extra/{phase}" for phase in model.phases)])


def _arms(model: CostModel, n: int, m: int) -> list[Arm]:
    runs = model.steady
    arms = []
    for series, of in runs[(runs.n == n) & (runs.m == m)].groupby("series", sort=False):
        mean, stderr = mean_and_stderr(of.seconds.to_numpy(float)[:, None])
        phases = {phase: float(of[f"seconds/{phase}"].mean()) for phase in model.phases}
        arms.append(Arm(str(series), float(mean[0]), float(stderr[0]), phases, frozenset(of.run)))
    if arms:
        return arms
    step = predict(model, n, m)
    return [Arm(f"{n}→{m}", step.seconds, math.nan, step.phases, outside=step.outside)]


def weigh(study: Study | None, one: Arm, other: Arm) -> list[Row]:
    """Compare two arms' costs per step, and the steps that they need where both have runs."""
    expensive, cheaper = sorted((one, other), key=lambda arm: -arm.seconds)
    cost = expensive.seconds / cheaper.seconds
    errors = [arm.stderr / arm.seconds for arm in (expensive, cheaper)]
    pair = {
        **{"expensive": expensive.name, "seconds": expensive.seconds},
        **{"cheaper": cheaper.name, "cheaper_seconds": cheaper.seconds},
        **{"cost": cost, "cost_stderr": cost * math.hypot(*errors)},
        "outside": one.outside or other.outside,
        **{f"extra/{k}": s - cheaper.phases[k] for k, s in expensive.phases.items()},
    }
    if not (one.runs and other.runs):
        return [{**pair, "verdict": "predicted, each phase by its own fit"}]
    targets = _targets(study, expensive, cheaper) if study else "no accuracies"
    if isinstance(targets, str):
        return [{**pair, "verdict": f"not timed: {targets}"}]
    for target in targets:
        speedup = target["speedup"] = target["steps_ratio"] / cost
        slower = speedup < 1 / MARGIN and target["high"] < 1
        faster = speedup > MARGIN and target["low"] > 1
        target["winner"] = "expensive" if faster else "cheaper" if slower else ""
    winners = {target["winner"] for target in targets} - {""}
    verdict = "depends on the accuracy" if len(winners) == 2 else "".join(winners) or "undecided"
    return [{**pair, **target, "verdict": verdict} for target in targets]


def _targets(study: Study, expensive: Arm, cheaper: Arm) -> list[Row] | str:
    """Return the accuracies that half of both arms' runs reach, or why there are none."""
    arms = [
        [curve for curve in run_curves(study, arm.name) if curve.run in arm.runs]
        for arm in (expensive, cheaper)
    ]
    if min(map(len, arms)) < LEAST_RUNS:
        return f"an arm has fewer than {LEAST_RUNS} complete runs"
    span = window((curve for arm in arms for curve in arm), study.until)
    paired = study.seeded and len({tuple(curve.seed for curve in arm) for arm in arms}) == 1
    draws = resamples([len(arm) for arm in arms[: 1 if paired else 2]], DRAWS, seed=0)
    levels = default_targets(arms, span)
    start = max(float(mean_curve(arm, np.array([span.start]))[0]) for arm in arms)
    targets = [
        {name: row[name] for name in ("target", "steps_ratio", "low", "high")}
        for row in speedups(arms[0], arms[1], levels, span, (draws[0], draws[-1]))
        if 0 < row.get("steps_ratio", math.nan) < math.inf
        and row["target"] >= start + LEAST_RISE
        and measured_targets(arms, [row["target"]], span)
    ]
    return targets or "half of the runs of both arms reach no common accuracy"
