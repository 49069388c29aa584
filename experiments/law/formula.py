"""What formulas of progress per step expect of the PODS authors' logs.

    python -m experiments.law.formula FOLDER    writes the rows of part a in predictions.csv

FOLDER is the authors' release. The floor is fitted to grpo 16→16 and pods 256→16, and no other
accuracy is read; published.py reads them all. A point is (success rate, concentration of its Beta
distribution, noise of a right rollout over that of a wrong one, NOISE).
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from pods.analysis.numbers.outcomes import RunCurve, run_curves
from pods.analysis.numbers.statistics import Floats
from pods_lab.advise.law import moments_of
from pods_lab.advise.progress import GradientScales, balanced, expected_progress
from pods_lab.published.release import read_release

HERE = Path(__file__).parent
ARMS = {  # the first one is what the others are compared with
    "GSM8K": ["grpo 16→16", "pods 32→16", "pods 64→16", "pods 128→16", "pods 256→16", "pods 64→8",
              "pods 64→4", "pods 64→2", "random 64→16", "max_reward 64→16"],
    "MATH": ["grpo 8→8", "pods 32→8"],
}  # fmt: skip
TARGETS = {"GSM8K": (79, 80, 81), "MATH": (45, 48)}
OTHERS = (0.5, 2.0, 8.0, 30.0), (0.02, 0.15, 1.0), (1.0, 4.0, 16.0, 64.0)
SUCCESS = {"GSM8K": (0.6, 0.7, 0.8, 0.85), "MATH": (0.3, 0.4, 0.5, 0.6)}
POINTS = {logs: [*product(rates, *OTHERS)] for logs, rates in SUCCESS.items()}
BASE, FITTED = "grpo 16→16", "pods 256→16"
AFTER = 150  # steps: the fast rise from the base model is over, and one rate is left
LAST = 4  # evaluations at the end whose mean is an arm's level
DRAWS = 1000
HIGHEST = moments_of(lambda n, m, right: np.eye(m + 1)[min(right, m)], "selected", "std")
"""The moments of max-reward, which keeps right rollouts as long as there are any."""
STEPS, LEVEL = "times fewer steps to {} %", "points at the end"
KEYS, ENDS = ["part", "arm", "over", "quantity"], ["expected", "low", "high"]
Point = tuple[float, float, float, float]
Row = dict[str, object]
Curves = dict[str, list[RunCurve]]


def progress(arm: str, point: Point, tilted: bool) -> float:
    """Return the progress of a step of one prompt under Adam, up to a factor that all arms share.

    Kappa is p (1 - p) if `tilted`, and otherwise the same for all prompts, as `pods advise` had it
    when these logs were first read.
    """
    n, m = map(int, arm.rpartition(" ")[2].split("→"))
    n = m if arm.startswith("random") else n
    success, concentration, ratio, noise = point
    posteriors = concentration * np.array([[success, 1 - success]])
    scales = GradientScales(noise, 0.0, ratio, own=float(tilted))
    moments = HIGHEST if arm.startswith("max_reward") else balanced
    return float(expected_progress([(n, m)], posteriors, scales, 1, moments)[0])


def gains(logs: str, point: Point, tilted: bool) -> dict[str, float]:
    """Return the progress per step of each arm in that of the first one."""
    found = {arm: progress(arm, point, tilted) for arm in ARMS[logs]}
    return {arm: value / found[ARMS[logs][0]] for arm, value in found.items()}


def curve(steps: Floats, gain: float, law: Sequence[float]) -> Floats:
    """Return the accuracy in percent of an arm that makes `gain` times GRPO's progress per step.

    `law`: GRPO's level in percent, its accuracy at step 0, its rate per 1,000 steps, and its floor,
    which is what it stays below the best policy since its learning rate is constant, as a share of
    100 - level. The arm is `gain` times as fast, and its floor is 1 / `gain` of GRPO's.
    """
    level, start, rate, floor = law
    top = level + floor * (100 - level) * (1 - 1 / gain)
    return np.asarray(top - (top - start) * np.exp(-2 * gain * rate * steps / 1000))


def steps_to(target: float, gain: float, law: Sequence[float]) -> np.float64:
    """Return when `curve` reaches a target; inf: never."""
    top, start = curve(np.array([np.inf, 0.0]), gain, law)
    way = (top - start) / (top - target) if target < top else np.inf
    return np.float64(max(np.log(way), 0) / (2 * gain * law[2] / 1000))


def fit(seen: Sequence[tuple[Floats, Floats]], gain: Sequence[float]) -> tuple[Floats, Floats]:
    """Fit the law to arms of known gains, GRPO first: the law, and how far each point is off."""

    def off(law: Floats) -> Floats:
        arms = zip(seen, gain, strict=True)
        return np.concatenate([curve(steps, g, law) - accuracy for (steps, accuracy), g in arms])

    begun, best = seen[0][1][0], seen[0][1].max()
    found = least_squares(off, [best, begun - 1, 1, 0.2], bounds=(
        [best - 5, 0, 0.01, 0], [99.9, begun, 20, 1]))  # fmt: skip
    return found.x, found.fun


def mean_curve(runs: Sequence[RunCurve]) -> tuple[Floats, Floats]:
    """Return mean steps and accuracy in percent of runs at their evaluations from AFTER on."""
    steps = np.mean([run.steps for run in runs], 0)
    accuracy = 100 * np.mean([run.accuracy for run in runs], 0)
    return steps[steps >= AFTER], accuracy[steps >= AFTER]


def curves_of(folder: Path, logs: str) -> Curves:
    """Return the runs of each arm."""
    study = read_release(folder, logs.lower()).study(logs)
    return {arm: run_curves(study, f"{logs} {arm}") for arm in ARMS[logs]}


def by_floor(curves: Curves, tilted: bool) -> Iterator[dict[tuple[str, str], float]]:
    """Yield what each draw of a point and of whole runs expects, by arm and quantity.

    Of the arms that the law is not fitted to only the steps at the last evaluations are read.
    """
    rng, points = np.random.default_rng(0), POINTS["GSM8K"]
    ends = {arm: np.mean([run.steps[-LAST:] for run in runs], 0) for arm, runs in curves.items()}
    for _ in range(DRAWS):
        gain = gains("GSM8K", points[rng.integers(len(points))], tilted)
        two = curves[BASE], curves[FITTED]
        drawn = [[of[i] for i in rng.integers(len(of), size=len(of))] for of in two]
        law, _ = fit([*map(mean_curve, drawn)], [1.0, gain[FITTED]])
        levels = {arm: float(curve(ends[arm], gain[arm], law).mean()) for arm in gain}
        found = {}
        for arm, target in product(ARMS["GSM8K"][1:], TARGETS["GSM8K"]):
            found[arm, LEVEL] = levels[arm] - levels[BASE]
            with np.errstate(divide="ignore", invalid="ignore"):  # 0: the arm never arrives
                times = steps_to(target, 1.0, law) / steps_to(target, gain[arm], law)
            found[arm, STEPS.format(target)] = float(times)
        yield found


def expected(folder: Path) -> Iterator[Row]:
    """Yield the rows of predictions.csv: the median and the range of what is expected.

    That is the whole range over the points, and for the formulas with a floor 95 % of the draws.
    """
    for logs, formula in product(ARMS, ("shipped", "kappa flat", "kappa p(1-p)")):
        of = [point for point in POINTS[logs] if formula != "shipped" or point[3] == 4]
        ratios = [gains(logs, point, "p(1-p)" in formula) for point in of]
        for arm, target in product(ARMS[logs][1:], TARGETS[logs]):
            ends = zip(ENDS, np.quantile([each[arm] for each in ratios], (0.5, 0, 1)), strict=True)
            yield row(logs, arm, STEPS.format(target), formula=formula, **dict(ends))
    curves = curves_of(folder, "GSM8K")
    for formula in ("kappa flat, floor", "kappa p(1-p), floor"):
        drawn = list(by_floor(curves, "p(1-p)" in formula))
        for arm, quantity in drawn[0]:
            values = [each[arm, quantity] for each in drawn]
            ends = np.nanquantile(values, (0.5, 0.025, 0.975), method="nearest")
            yield row("GSM8K", arm, quantity, formula=formula) | dict(zip(ENDS, ends, strict=True))


def row(logs: str, arm: str, quantity: str, **others: object) -> Row:
    """Begin a row of an arm."""
    key = "a", f"{logs} {arm}", f"{logs} {ARMS[logs][0]}", quantity
    return dict(zip(KEYS, key, strict=True)) | others


if __name__ == "__main__":
    path = HERE / "predictions.csv"
    others = pd.read_csv(path).query("part != 'a'")
    table = pd.concat([pd.DataFrame(expected(Path(sys.argv[1]))), others])
    table.to_csv(path, index=False, float_format="%.5g")
