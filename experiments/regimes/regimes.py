"""Where PODS pays, and where a smaller GRPO does: from twenty start policies.

    python -m experiments.regimes.regimes [RUNS]     reads RUNS (default: runs), writes all
    python -m experiments.regimes.regimes --again    writes from regimes.runs.csv alone

Five policies have about the same success rate, each with a seed of its own, and differences are
paired over policies. All arms were trained under the prices of one CPU core, prices.json. Those of
a policy are measured in one window, which ends where its first records end.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import axes, curves_of, report

from pods.analysis.compare.compare import with_holm
from pods.analysis.numbers.outcomes import RunCurve, final_accuracy, mean_accuracy, window

HERE = Path(__file__).parent
RATES = ("05", "25", "60", "90")
POLICIES = range(1, 6)
GRPO = "grpo 16→16"
OTHERS = ("grpo 8→8", "pods 16→8", "pods 32→16", "pods 64→16")
COLOURS = ("#e69f00", "#0072b2", "#56b4e9", "#d55e00")
OUTCOMES = ["mean_accuracy", "final_accuracy", "mean_pass5"]


def arms_of(runs: Path, policy: str, metric: str) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm from a policy."""
    curves = curves_of(runs / f"regimes_{policy}", metric=metric)
    return {name.partition(",")[0]: runs_of_arm for name, runs_of_arm in curves.items()}


def measured(runs: Path) -> Iterator[dict[str, object]]:
    """Yield the outcomes of each run."""
    for rate in RATES:
        for number in POLICIES:
            by_answer = arms_of(runs, f"s{number}_{rate}", "pass@1")
            by_pass5 = arms_of(runs, f"s{number}_{rate}", "pass@5")
            span = window(curve for curves in by_answer.values() for curve in curves)
            for arm, curves in by_answer.items():
                for curve, pass5 in zip(curves, by_pass5[arm], strict=True):
                    yield {
                        "rate": rate,
                        "policy": number,
                        "arm": arm,
                        "seed": curve.seed,
                        "seconds": span.end,
                        "start_accuracy": curve.accuracy[0],
                        "mean_accuracy": mean_accuracy(curve, span),
                        "final_accuracy": final_accuracy(curve, span),
                        "mean_pass5": mean_accuracy(pass5, span),
                    }


def by_policy(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the outcomes of each rate, policy and arm."""
    grouped = runs.groupby(["rate", "policy", "arm"])[["start_accuracy", *OUTCOMES]]
    return grouped.mean().reset_index()


def against_grpo(policies: pd.DataFrame) -> pd.DataFrame:
    """Return a row per rate, other arm and outcome, with what it gains, paired over policies."""
    rows = []
    for rate, of_rate in policies.groupby("rate"):
        for outcome in OUTCOMES:
            values = of_rate.pivot(index="policy", columns="arm", values=outcome)
            for arm in OTHERS:
                row = {
                    "rate": rate,
                    "arm": arm,
                    "outcome": outcome,
                    "value": values[arm].mean(),
                    "start_accuracy": of_rate.start_accuracy.mean(),
                }
                rows.append(row | contrast((values[arm] - values[GRPO]).to_numpy(float)))
    return with_holm(pd.DataFrame(rows))


def registered(policies: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the registered contrasts of mean accuracy, with Holm's correction over them."""
    rows = []
    for prediction in predictions.to_dict("records"):
        of_rate = policies[policies.rate.astype(int) == prediction["rate"]]
        values = of_rate.pivot(index="policy", columns="arm", values="mean_accuracy")
        differences = values[prediction["arm"]] - values[prediction["over"]]
        row = {
            "outcome": "mean_accuracy",
            "rate": prediction["rate"],
            "start_accuracy": of_rate.start_accuracy.mean(),
            "arm": prediction["arm"],
            "over": prediction["over"],
            "expected": prediction["expected"],
            "expected_low": prediction["low"],
            "expected_high": prediction["high"],
        }
        rows.append(row | contrast(differences.to_numpy(float)))
    return with_holm(pd.DataFrame(rows))


def draw(table: pd.DataFrame) -> None:
    """Draw regimes.png: what each arm gains over GRPO, by the success rate at the start."""
    means = table[table.outcome == "mean_accuracy"]
    with axes(HERE / "regimes.png", 7, 3.8) as axis:
        for place, (arm, colour) in enumerate(zip(OTHERS, COLOURS, strict=True)):
            of_arm = means[means.arm == arm]
            errors = np.array([of_arm.estimate - of_arm.low, of_arm.high - of_arm.estimate])
            x = np.arange(len(of_arm)) + 0.13 * (place - 1.5)
            axis.errorbar(x, 100 * of_arm.estimate, 100 * errors, fmt="o", color=colour, label=arm)

        rates = means.groupby("rate").start_accuracy.first()
        axis.set_xticks(range(len(rates)), [f"{100 * rate:.0f} %" for rate in rates])
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xlabel("right at the start, mean of five policies")
        axis.set_ylabel("points above GRPO 16→16")


def main() -> None:
    """Write the tables and the figure."""
    path = HERE / "regimes.runs.csv"
    if "--again" not in sys.argv:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
        pd.DataFrame(measured(folder)).to_csv(path, index=False, float_format="%.6g")

    policies = by_policy(pd.read_csv(path, dtype={"rate": str}))
    table = against_grpo(policies)
    report(table, HERE / "regimes.csv")
    predictions = pd.read_csv(HERE / "predictions.csv", comment="#")
    report(registered(policies, predictions), HERE / "registered.csv")
    draw(table)


if __name__ == "__main__":
    main()
