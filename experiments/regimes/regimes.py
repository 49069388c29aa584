"""Where PODS pays, and whether choosing n and m while training does: from twenty start policies.

    python -m experiments.regimes.regimes [RUNS]     reads RUNS (default: runs), writes all
    python -m experiments.regimes.regimes --again    writes from regimes.runs.csv alone

Five policies have about the same success rate, and differences are paired over policies. The steps
of fixed arms are timed by the prices of one CPU core, cpu.json; adaptive arms were trained under
them. All arms of a policy are measured in one window, which ends where its first records end.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast, with_holm
from experiments.curves import axes, curves_of, report

from pods.analysis.numbers.outcomes import RunCurve, final_accuracy, mean_accuracy, window
from pods.config.clock_model import read_clock_model

HERE = Path(__file__).parent
RATES, POLICIES, GRPO = ("05", "25", "60", "90"), range(1, 6), "grpo 16→16"
FIXED = {GRPO: "black", "pods 16→8": "#0072b2", "pods 32→16": "#56b4e9", "pods 64→16": "#d55e00"}
ADAPTIVE = {"adaptive 16-64→16": "#009e73", "adaptive 16-64→8-16": "#cc79a7"}
OUTCOMES = ["mean_accuracy", "final_accuracy", "mean_pass5"]


def arms_of(runs: Path, policy: str, metric: str) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm from a policy, timed by the file of prices."""
    clock = read_clock_model(str(HERE / "cpu.json"))
    fixed = curves_of(runs / f"law_d_{policy}", clock=clock, metric=metric)
    return fixed | curves_of(runs / f"timed_{policy}", metric=metric)


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


def against(policies: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return a row per rate, arm and outcome: its mean, and what it gains over a baseline."""
    rows = []
    for rate, of_rate in policies.groupby("rate"):
        for outcome in OUTCOMES:
            values = of_rate.pivot(index="policy", columns="arm", values=outcome)
            for arm in [*FIXED, *ADAPTIVE]:
                row = {
                    "rate": rate,
                    "arm": arm,
                    "outcome": outcome,
                    "baseline": baseline,
                    "start_accuracy": of_rate.start_accuracy.mean(),
                    "value": values[arm].mean(),
                }
                ahead = (values[arm] - values[baseline]).to_numpy(float)
                rows.append(row | (contrast(ahead) if arm != baseline else {}))
    return with_holm(pd.DataFrame(rows).dropna(subset="p"), "outcome")


def regrets(policies: pd.DataFrame) -> pd.DataFrame:
    """Return by arm the largest and the mean of what it is behind a rate's best fixed arm."""
    table = policies.pivot_table("mean_accuracy", "rate", "arm")
    behind = table[[*FIXED]].max(axis=1).to_numpy()[:, None] - table[[*FIXED, *ADAPTIVE]]
    return behind.clip(lower=0).agg(["max", "mean"]).T.reset_index()


def draw(table: pd.DataFrame) -> None:
    """Draw regimes.png: what each arm gains over GRPO, by the success rate at the start."""
    with axes(HERE / "regimes.png", 7, 3.8) as axis:
        for place, (arm, colour) in enumerate((FIXED | ADAPTIVE).items(), -3):
            of = table[(table.arm == arm) & (table.outcome == "mean_accuracy")]
            if arm != GRPO:
                errors = 100 * np.array([of.estimate - of.low, of.high - of.estimate])
                x = np.arange(len(of)) + 0.13 * place
                axis.errorbar(x, 100 * of.estimate, errors, fmt="o", color=colour, label=arm)
        names = [f"{100 * rate:.0f} %" for rate in table.groupby("rate").start_accuracy.first()]
        axis.set_xticks(range(len(names)), names)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xlabel("right at the start, mean of five policies")
        axis.set_ylabel("points of mean accuracy above GRPO 16→16")


def main() -> None:
    """Write the tables and the figure."""
    path = HERE / "regimes.runs.csv"
    if "--again" not in sys.argv:
        made = pd.DataFrame(measured(Path(sys.argv[1] if len(sys.argv) > 1 else "runs")))
        made.to_csv(path, index=False, float_format="%.6g")
    runs = pd.read_csv(path, dtype={"rate": str})
    policies = runs.groupby(["rate", "policy", "arm"])[["start_accuracy", *OUTCOMES]].mean()
    table = against(policies.reset_index(), GRPO)
    report(table, HERE / "regimes.csv")
    report(regrets(policies.reset_index()), HERE / "regret.csv")
    draw(table)


if __name__ == "__main__":
    main()
