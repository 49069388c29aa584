"""What formulas of progress per step expect of the PODS authors' logs.

    python -m experiments.law.formula    writes the rows of part a in predictions.csv

No accuracy of the logs is read here; published.py reads them. A point is (success rate,
concentration of its Beta distribution, noise of a right rollout over that of a wrong one, NOISE).
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.numbers.outcomes import RunCurve, run_curves
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
PODS = "pods 64→16"
AT_FIXED_N = ("pods 64→8", "pods 64→4", "pods 64→2")
HIGHEST = moments_of(lambda n, m, right: np.eye(m + 1)[min(right, m)], "selected", "std")
"""The moments of max-reward, which keeps right rollouts as long as there are any."""
STEPS = "times fewer steps to {} %"
KEYS, ENDS = ["part", "arm", "over", "quantity"], ["expected", "low", "high"]
Point = tuple[float, float, float, float]
Row = dict[str, object]
Curves = dict[str, list[RunCurve]]


def progress(arm: str, point: Point, tilted: bool) -> float:
    """Return the progress of a step of one prompt under Adam, up to a factor that all arms share.

    Kappa is p (1 - p) if `tilted`, and the same for all prompts otherwise.
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
    by_arm = {arm: progress(arm, point, tilted) for arm in ARMS[logs]}
    base = by_arm[ARMS[logs][0]]
    return {arm: value / base for arm, value in by_arm.items()}


def curves_of(folder: Path, logs: str) -> Curves:
    """Return the runs of each arm."""
    study = read_release(folder, logs.lower()).study(logs)
    return {arm: run_curves(study, f"{logs} {arm}") for arm in ARMS[logs]}


def expected() -> Iterator[Row]:
    """Yield the rows of predictions.csv: the median and the range over the points."""
    for logs, formula in product(ARMS, ("shipped", "kappa flat", "kappa p(1-p)")):
        points = [point for point in POINTS[logs] if formula != "shipped" or point[3] == 4]
        ratios = [gains(logs, point, "p(1-p)" in formula) for point in points]
        for arm, target in product(ARMS[logs][1:], TARGETS[logs]):
            values = [ratio[arm] for ratio in ratios]
            yield row(logs, arm, STEPS.format(target), formula, values)


def expected_at_fixed_n() -> Iterator[Row]:
    """Yield the rows of fixed_n.csv: what the law expects of 64→m over 64→16, at any target."""
    ratios = []
    for point in POINTS["GSM8K"]:
        gain = gains("GSM8K", point, tilted=False)
        ratios.append({arm: gain[arm] / gain[PODS] for arm in AT_FIXED_N})
    for arm in AT_FIXED_N:
        low, median, high = np.quantile([ratio[arm] for ratio in ratios], (0, 0.5, 1))
        yield {"arm": f"GSM8K {arm}", "expected": median, "expected_low": low, "expected_high": high}


def row(logs: str, arm: str, quantity: str, formula: str, values: list[float]) -> Row:
    """Return the row of an arm: the median and the whole range of what is expected."""
    low, median, high = np.quantile(values, (0, 0.5, 1))
    return {
        "part": "a",
        "arm": f"{logs} {arm}",
        "over": f"{logs} {ARMS[logs][0]}",
        "quantity": quantity,
        "formula": formula,
        "expected": median,
        "low": low,
        "high": high,
    }


if __name__ == "__main__":
    path = HERE / "predictions.csv"
    made = pd.DataFrame(expected())
    before = pd.read_csv(path)
    others = before[(before.part != "a") | ~before.formula.isin(made.formula)]
    table = pd.concat([made, others])
    table.to_csv(path, index=False, float_format="%.5g")
