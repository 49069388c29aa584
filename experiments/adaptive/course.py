"""Adaptive n against every fixed n over a whole course, from a quarter right to nearly all.

    python -m experiments.adaptive.course [RUNS]     reads RUNS (default: runs), writes all
    python -m experiments.adaptive.course --again    from course.runs.csv

The steps of the fixed arms are timed by the prices of one CPU core; the adaptive arm was trained
under them. Differences are paired over seeds, with 95 % t intervals. adaptive.csv and regret.csv
are by start policy, from ../regimes/regimes.runs.csv: the regret of an arm is what it is behind the
best fixed one of a start.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from experiments.contrasts import contrast, with_holm
from experiments.curves import in_one_window, report

from pods.analysis.numbers.outcomes import final_accuracy, mean_accuracy

HERE = Path(__file__).parent
CLOCK = HERE.parent / "regimes" / "cpu.json"
GRPO, ADAPTIVE = "grpo 16→16", "adaptive 16-64→16"
ALL = "mean of the four"
FIXED = [GRPO, "pods 32→16", "pods 64→16"]


def measured(runs: Path) -> Iterator[dict[str, object]]:
    """Yield the outcomes of each run."""
    arms, span = in_one_window(runs / "regimes_course", CLOCK, runs / "adaptive_course_cpu")
    for arm, curves in arms.items():
        for curve in curves:
            outcomes = {"mean_accuracy": mean_accuracy(curve, span),
                        "final_accuracy": final_accuracy(curve, span)}  # fmt: skip
            yield {"arm": arm, "seed": curve.seed, "seconds": span.end} | outcomes


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Return adaptive minus each fixed arm, in both outcomes."""
    rows = []
    for outcome in ("mean_accuracy", "final_accuracy"):
        table = runs.pivot(index="seed", columns="arm", values=outcome)
        for other in FIXED:
            row = {"outcome": outcome, "adaptive": table[ADAPTIVE].mean(), "other": other,
                   "value": table[other].mean(), "value_stderr": table[other].sem()}  # fmt: skip
            rows.append(row | contrast((table[ADAPTIVE] - table[other]).to_numpy(float)))
    return with_holm(pd.DataFrame(rows), "outcome")


def by_start(runs: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield adaptive minus each fixed arm by start, and for the mean over the starts."""
    table = runs.pivot_table("mean_accuracy", ["start", "seed"], "arm")
    starts = {str(start): table.loc[start] for start in runs.start.unique()}
    for start, values in (starts | {ALL: table.groupby("seed").mean()}).items():
        for other in FIXED:
            difference = (values[ADAPTIVE] - values[other]).to_numpy(float)
            yield {"start": start, "other": other} | contrast(difference)


def regrets(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the largest and the mean regret of each arm over the starts."""
    table = runs.pivot_table("mean_accuracy", "start", "arm")[[*FIXED, ADAPTIVE]]
    behind = -table.sub(table[FIXED].max(axis=1), axis=0)
    return behind.clip(lower=0).agg(["max", "mean"]).T.add_prefix("regret_").reset_index()


def main() -> None:
    """Write the tables."""
    if "--again" not in sys.argv:
        measured_runs = pd.DataFrame(measured(Path(sys.argv[1] if len(sys.argv) > 1 else "runs")))
        measured_runs.to_csv(HERE / "course.runs.csv", index=False, float_format="%.6g")
    report(differences(pd.read_csv(HERE / "course.runs.csv")), HERE / "course.csv")
    starts = pd.read_csv(HERE.parent / "regimes" / "regimes.runs.csv")
    report(with_holm(pd.DataFrame(by_start(starts)), "other"), HERE / "adaptive.csv")
    report(regrets(starts), HERE / "regret.csv")


if __name__ == "__main__":
    main()
