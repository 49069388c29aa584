"""Where PODS pays: each arm against GRPO in equal time, from four start policies.

    python -m experiments.regimes.regimes [RUNS]     reads RUNS (default: runs), writes all
    python -m experiments.regimes.regimes --again    writes from regimes.runs.csv alone

The steps of the fixed arms are timed by the prices of one CPU core, cpu.json; the adaptive arm was
trained under them. All arms of a start are measured in one window, which ends where the first of
their records ends.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast, with_holm
from experiments.curves import axes, in_one_window, report

from pods.analysis.compare.speedup import speedups
from pods.analysis.numbers.outcomes import RunCurve, Window, final_accuracy, mean_accuracy
from pods.analysis.numbers.statistics import resamples

HERE = Path(__file__).parent
STARTS = ("p05", "p25", "p60", "p90")
GRPO, ADAPTIVE = "grpo 16→16", "adaptive 16-64→16"
COLOURS = {
    "pods 32→16": "#56b4e9", "pods 64→16": "#d55e00", "random 64→16": "#999999",
    "reinforce_ada 64→16": "#cc79a7", ADAPTIVE: "#009e73",
}  # fmt: skip
SHARE = 0.8  # of GRPO's way: to the accuracy that speed-ups are to
DRAWS = 2000


def most_of_the_way(grpo: Sequence[RunCurve], span: Window) -> float:
    """Return the accuracy that is SHARE of the way from GRPO's at the start to its at the end."""
    first = float(np.mean([curve.accuracy[0] for curve in grpo]))
    last = float(np.mean([final_accuracy(curve, span) for curve in grpo]))
    return first + SHARE * (last - first)


def measured(runs: Path) -> Iterator[dict[str, object]]:
    """Yield a row per run: start, arm, seed and outcomes; and the arm's speed-up."""
    for start in STARTS:
        adaptive = runs / f"adaptive_{start}_cpu"
        arms, span = in_one_window(runs / f"regimes_{start}", HERE / "cpu.json", adaptive)
        target = most_of_the_way(arms[GRPO], span)
        for arm, curves in arms.items():
            [drawn] = resamples([len(curves)], DRAWS, 0)
            timed = speedups(curves, arms[GRPO], [target], span, (drawn, drawn))[0]
            for curve in curves:
                yield {
                    **{"start": start, "arm": arm, "seed": curve.seed, "seconds": span.end},
                    "start_accuracy": curve.accuracy[0],
                    "mean_accuracy": mean_accuracy(curve, span),
                    "final_accuracy": final_accuracy(curve, span),
                    **{f"speedup_{key}": timed[key] for key in ("ratio", "low", "high", "bound")},
                }


def against_grpo(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per start and arm, with what it gains over GRPO, paired over seeds."""
    rows = []
    for start, of_start in runs.groupby("start", sort=False):
        values = of_start.pivot(index="seed", columns="arm", values="mean_accuracy")
        for arm, of_arm in of_start.groupby("arm", sort=False):
            row = {"start": start, "arm": arm}
            row |= of_arm.drop(columns=["start", "arm", "seed"]).mean().to_dict()
            if arm != GRPO:
                tested = contrast((values[arm] - values[GRPO]).to_numpy(float))
                row |= {f"gain_{key}": value for key, value in tested.items()}
            rows.append(row)
    return with_holm(pd.DataFrame(rows), "arm", "gain_")


def draw(table: pd.DataFrame) -> None:
    """Draw regimes.png: what each arm gains over GRPO, by start."""
    with axes(HERE / "regimes.png", 7, 3.8) as axis:
        for place, (arm, colour) in enumerate(COLOURS.items()):
            of = table[table.arm == arm]
            middle = 100 * of.gain_estimate
            errors = [middle - 100 * of.gain_low, 100 * of.gain_high - middle]
            x = np.arange(len(of)) + 0.13 * (place - 2)
            axis.errorbar(x, middle, errors, fmt="o", ms=5, capsize=3, color=colour, label=arm)
        ends = table[table.arm == GRPO][["start_accuracy", "final_accuracy"]].to_numpy()
        names = [f"{100 * first:.0f} → {100 * last:.0f} %" for first, last in ends]
        axis.set_xticks(range(len(names)), names)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xlabel("right at the start → at the end, GRPO 16→16")
        axis.set_ylabel("points of mean accuracy above GRPO")


def main() -> None:
    """Write the tables and the figure."""
    if "--again" not in sys.argv:
        measured_runs = pd.DataFrame(measured(Path(sys.argv[1] if len(sys.argv) > 1 else "runs")))
        measured_runs.to_csv(HERE / "regimes.runs.csv", index=False, float_format="%.6g")
    table = against_grpo(pd.read_csv(HERE / "regimes.runs.csv"))
    report(table, HERE / "regimes.csv")
    draw(table)


if __name__ == "__main__":
    main()
