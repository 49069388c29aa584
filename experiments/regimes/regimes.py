"""Where PODS pays, from twenty start policies.

    python -m experiments.regimes.regimes [RUNS]     reads RUNS (default: runs), writes all
    python -m experiments.regimes.regimes --again    writes from regimes.runs.csv alone

Five policies have about the same success rate, each with a seed of its own, and differences are
paired over policies. All arms were trained under the prices of one CPU core, cpu.json. Those of a
policy are measured in one window, which ends where its first records end.
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
RATES, POLICIES, GRPO = ("05", "25", "60", "90"), range(1, 6), "grpo 16→16"
FIXED = (GRPO, "pods 16→8", "pods 32→16", "pods 64→16")
OTHERS = FIXED[1:]
COLOURS = ("#0072b2", "#56b4e9", "#d55e00")
OUTCOMES = ["mean_accuracy", "final_accuracy", "mean_pass5"]


def arms_of(runs: Path, policy: str, metric: str) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm from a policy."""
    found = curves_of(runs / f"regimes_{policy}", metric=metric)
    return {name.partition(",")[0]: curves for name, curves in found.items()}


def measured(runs: Path) -> Iterator[dict[str, object]]:
    """Yield the outcomes of each run."""
    for rate in RATES:
        for number in POLICIES:
            of = [arms_of(runs, f"s{number}_{rate}", metric) for metric in ("pass@1", "pass@5")]
            span = window(curve for curves in of[0].values() for curve in curves)
            for arm in of[0]:
                for curve, by_pass5 in zip(of[0][arm], of[1][arm], strict=True):
                    yield {"rate": rate, "policy": number, "arm": arm, "seed": curve.seed,
                           "seconds": span.end, "start_accuracy": curve.accuracy[0],
                           "mean_accuracy": mean_accuracy(curve, span),
                           "final_accuracy": final_accuracy(curve, span),
                           "mean_pass5": mean_accuracy(by_pass5, span)}  # fmt: skip


def against_grpo(policies: pd.DataFrame) -> pd.DataFrame:
    """Return a row per rate, other arm and outcome, with what it gains, paired over policies."""
    rows = []
    for rate, of_rate in policies.groupby("rate"):
        for outcome in OUTCOMES:
            values = of_rate.pivot(index="policy", columns="arm", values=outcome)
            for arm in OTHERS:
                row = {"rate": rate, "arm": arm, "outcome": outcome, "value": values[arm].mean(),
                       "start_accuracy": of_rate.start_accuracy.mean()}  # fmt: skip
                rows.append(row | contrast((values[arm] - values[GRPO]).to_numpy(float)))
    return with_holm(pd.DataFrame(rows))


def regrets(policies: pd.DataFrame) -> pd.DataFrame:
    """Return by arm the largest and the mean of what it is behind a rate's best arm.

    The best is known afterwards, from means over the same runs.
    """
    table = policies.pivot_table("mean_accuracy", "rate", "arm")
    best = table.max(axis=1).to_numpy()[:, None]
    behind = best - table[list(FIXED)]
    return behind.agg(["max", "mean"]).T.reset_index()


def draw(table: pd.DataFrame) -> None:
    """Draw regimes.png: what each arm gains over GRPO, by the success rate at the start."""
    with axes(HERE / "regimes.png", 7, 3.8) as axis:
        for place, (arm, colour) in enumerate(zip(OTHERS, COLOURS, strict=True)):
            of = table[(table.arm == arm) & (table.outcome == "mean_accuracy")]
            errors = 100 * np.array([of.estimate - of.low, of.high - of.estimate])
            x = np.arange(len(of)) + 0.13 * (place - 1)
            axis.errorbar(x, 100 * of.estimate, errors, fmt="o", color=colour, label=arm)
        names = [f"{100 * rate:.0f} %" for rate in table.groupby("rate").start_accuracy.first()]
        axis.set_xticks(range(len(names)), names)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xlabel("right at the start, mean of five policies")
        axis.set_ylabel("points above GRPO 16→16")


def main() -> None:
    """Write the tables and the figure."""
    path = HERE / "regimes.runs.csv"
    if "--again" not in sys.argv:
        made = pd.DataFrame(measured(Path(sys.argv[1] if len(sys.argv) > 1 else "runs")))
        made.to_csv(path, index=False, float_format="%.6g")
    runs = pd.read_csv(path, dtype={"rate": str})
    policies = runs.groupby(["rate", "policy", "arm"])[["start_accuracy", *OUTCOMES]].mean()
    table = against_grpo(policies.reset_index())
    report(table, HERE / "regimes.csv")
    report(regrets(policies.reset_index()), HERE / "regret.csv")
    draw(table)


if __name__ == "__main__":
    main()
