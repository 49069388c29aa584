"""Adaptive n against every fixed n over a whole course, from a quarter right to nearly all.

    python experiments/adaptive/course.py [RUNS]     reads RUNS (default: runs), writes course*.csv
    python experiments/adaptive/course.py --draw     draws course.png from course.curves.csv

The steps of the fixed arms are timed by each machine's prices; the adaptive arm was trained under
them. Differences are paired over seeds, in points, with 95 % t intervals.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.outcomes import (
    RunCurve,
    accuracy_at,
    final_accuracy,
    mean_accuracy,
    run_curves,
    window,
)
from pods.analysis.statistics import holm, t_test
from pods.analysis.study import load
from pods.analysis.view import View, choose
from pods.config.clock_model import ClockModel, read_clock_model
from pods.runs.store import run_folders

HERE = Path(__file__).parent
CLOCKS = {"cpu": str(HERE.parent / "regimes" / "cpu.json"), "l40s": "l40s", "h100x8": "h100x8"}
TITLES = {"cpu": "one CPU core", "l40s": "one L40S", "h100x8": "8 × H100"}
GRPO, ADAPTIVE = "grpo 16→16", "adaptive 16-64→16"
OTHERS = {"pods 32→16": "#56b4e9", "pods 64→16": "#d55e00", ADAPTIVE: "#009e73"}
SHARES = np.linspace(0, 1, 29)  # of the window, at which curves are drawn


def curves_of(folder: Path, clock: ClockModel | None) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm of a study, timed by the prices if any are given."""
    study = choose(load(folder, run_folders(folder)), View(clock=clock))
    return {name: run_curves(study, name) for name in study.runs.series.unique()}


def measured(runs: Path) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    """Yield the outcomes of each run, and its accuracies at SHARES of the window."""
    for name, source in CLOCKS.items():
        arms = curves_of(runs / "regimes_course", read_clock_model(source))
        arms |= curves_of(runs / f"adaptive_course_{name}", None)
        span = window(curve for curves in arms.values() for curve in curves)
        for arm, curves in arms.items():
            for curve in curves:
                outcomes = {"mean_accuracy": 100 * mean_accuracy(curve, span),
                            "final_accuracy": 100 * final_accuracy(curve, span)}  # fmt: skip
                run = {"clock": name, "arm": arm, "seed": curve.seed, "seconds": span.end}
                yield run | outcomes, 100 * accuracy_at(curve, SHARES * span.end)


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Return adaptive minus each fixed arm, on each machine, in both outcomes."""
    rows = []
    for (outcome, clock), of in runs.melt(
        ["clock", "arm", "seed", "seconds"], var_name="outcome"
    ).groupby(["outcome", "clock"], sort=False):
        table = of.pivot(index="seed", columns="arm", values="value")
        for other in (GRPO, *[arm for arm in OTHERS if arm != ADAPTIVE]):
            test = t_test((table[ADAPTIVE] - table[other]).to_numpy(float))
            rows.append({"outcome": outcome, "clock": clock, "adaptive": table[ADAPTIVE].mean(),
                         "other": other, "value": table[other].mean(), "seeds": len(table),
                         "difference": test.estimate, "low": test.low, "high": test.high,
                         "p": test.p})  # fmt: skip
    found = pd.DataFrame(rows)
    found["holm"] = found.groupby("outcome").p.transform(lambda p: holm(p.to_numpy(float)))
    return found


def above_grpo(found: list[tuple[dict[str, object], np.ndarray]]) -> Iterator[dict[str, object]]:
    """Yield how far each arm is above GRPO at each share of the window, paired over seeds."""
    at = {(run["clock"], run["arm"], run["seed"]): values for run, values in found}
    for clock in CLOCKS:
        seeds = [seed for of, arm, seed in at if (of, arm) == (clock, GRPO)]
        for arm in OTHERS:
            gains = np.array([at[clock, arm, s] - at[clock, GRPO, s] for s in seeds])
            for share, gain in zip(SHARES, gains.T, strict=True):
                test = t_test(gain)
                low, high = (test.low, test.high) if share else (test.estimate, test.estimate)
                yield {"clock": clock, "arm": arm, "share": share, "gain": test.estimate,
                       "low": low, "high": high}  # fmt: skip


def draw(table: pd.DataFrame) -> None:
    """Draw course.png: points above GRPO along the budget, a panel for each machine."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, clock in zip(axes, CLOCKS, strict=True):
        for arm, colour in OTHERS.items():
            of = table[(table.clock == clock) & (table.arm == arm)]
            axis.plot(of.share, of.gain, color=colour, label=arm)
            axis.fill_between(of.share, of.low, of.high, color=colour, alpha=0.2, lw=0)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(f"prices of {TITLES[clock]}")
        axis.set_xlabel("share of the budget")
    axes[0].set_ylabel("accuracy − GRPO's, points (95 % t interval)")
    axes[0].legend(fontsize=8)
    figure.savefig(HERE / "course.png", dpi=130)


def main() -> None:
    """Write the tables unless only the drawing is asked for, and draw."""
    if "--draw" not in sys.argv:
        found = list(measured(Path(sys.argv[1] if len(sys.argv) > 1 else "runs")))
        runs = pd.DataFrame([run for run, _ in found])
        table = differences(runs)
        curves = pd.DataFrame(above_grpo(found))
        for name, frame in (("course.runs", runs), ("course", table), ("course.curves", curves)):
            frame.to_csv(HERE / f"{name}.csv", index=False, float_format="%.5g")
        print(table.round(3).to_string(index=False))
    draw(pd.read_csv(HERE / "course.curves.csv"))


if __name__ == "__main__":
    main()
