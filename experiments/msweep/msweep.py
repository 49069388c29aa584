"""How many times fewer steps 64→m needs than 64→16, beside what the law expects of m at fixed n.

    python -m experiments.msweep.msweep [RUNS]     reads the study RUNS/msweep (default: runs)
    python -m experiments.msweep.msweep --again    reads runs.csv

Writes runs.csv (a row per run) and ratios.csv (a row per m and target), and draws msweep.png. A
ratio is the steps in which the mean curve of 64→16 first reaches a share of right answers over the
steps of 64→m, with a 95 % interval over seeds, which are resampled alike for both arms.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.curves import axes, curves_of, report
from experiments.law.measure import steps_to

HERE = Path(__file__).parent
BASE = "pods 64→16"
ARMS = ("pods 64→2", "pods 64→4", "pods 64→8", "pods 64→64")
TARGETS = (0.40, 0.50, 0.55)
RESAMPLES = 2000


def measured(runs: Path) -> pd.DataFrame:
    """Return a row per evaluation of each run."""
    rows = []
    for arm, curves in curves_of(runs / "msweep").items():
        for curve in curves:
            for step, accuracy in zip(curve.steps, curve.accuracy, strict=True):
                name = "pods 64→64" if arm.endswith("64→64") else arm
                rows.append(
                    {"arm": name, "seed": curve.seed, "step": int(step), "accuracy": accuracy}
                )
    return pd.DataFrame(rows)


def ratios(runs: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Return a row per arm and target: the ratio, its interval, and what was expected."""
    steps = np.sort(runs.step.unique()).astype(float)
    curves = {
        arm: group.pivot(index="seed", columns="step", values="accuracy").to_numpy(float)
        for arm, group in runs.groupby("arm")
    }
    seeds = len(curves[BASE])
    draws = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))

    rows = []
    for arm in ARMS:
        prediction = expected.set_index("arm").loc[arm]
        for target in TARGETS:
            base_steps = steps_to(target, curves[BASE], steps)
            arm_steps = steps_to(target, curves[arm], steps)
            drawn = [
                steps_to(target, curves[BASE][draw], steps)
                / steps_to(target, curves[arm][draw], steps)
                for draw in draws
            ]
            low, high = np.quantile(drawn, (0.025, 0.975))
            row = {
                "arm": arm,
                "target": target,
                "seeds": seeds,
                "base_steps": base_steps,
                "arm_steps": arm_steps,
                "ratio": base_steps / arm_steps,
                "low": low,
                "high": high,
                "expected": prediction.expected,
                "expected_low": prediction.low,
                "expected_high": prediction.high,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> None:
    """Draw msweep.png: measured ratios, and the range that the law expects."""
    with axes(HERE / "msweep.png", 6, 3.8) as axis:
        places = np.arange(len(ARMS))
        expected = table.groupby("arm", sort=False).first()
        axis.bar(
            places,
            expected.expected_high - expected.expected_low,
            bottom=expected.expected_low,
            width=0.8,
            color="#cccccc",
            label="the law",
        )
        for number, (target, group) in enumerate(table.groupby("target")):
            errors = np.array([group.ratio - group.low, group.high - group.ratio])
            axis.errorbar(
                places + 0.2 * (number - 1),
                group.ratio,
                errors,
                fmt="o",
                label=f"to {100 * target:.0f} % right",
            )
        axis.axhline(1, color="black", lw=0.8)
        axis.set_xticks(places, [arm.removeprefix("pods ") for arm in ARMS])
        axis.set_ylabel("times fewer steps than 64→16")


def main() -> None:
    """Write the tables and the figure."""
    path = HERE / "runs.csv"
    if "--again" not in sys.argv:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
        measured(folder).to_csv(path, index=False, float_format="%.6g")

    table = ratios(pd.read_csv(path), pd.read_csv(HERE / "predictions.csv", comment="#"))
    report(table, HERE / "ratios.csv")
    draw(table)


if __name__ == "__main__":
    main()
