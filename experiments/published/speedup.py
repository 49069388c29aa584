"""Write speedup.csv: arms of the authors' logs against a baseline, one line per pair.

Usage, after `pods reproduce all`: python experiments/published/speedup.py [RUNS]

The numbers are those that `pods compare` writes: the difference in mean accuracy over the window,
and how many times as fast the arm is at 99 % of the baseline's best.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
N_AND_M = "pods 32->16,pods 64->16,pods 128->16,pods 256->16,pods 64->8"
WINDOW = ["--until", "1800"]
COMPARISONS = (  # logs, baseline, arms, options of `pods compare`
    ("gsm8k", "grpo", N_AND_M, []),
    ("gsm8k", "random 64->16", "pods 64->16", []),
    ("math", "grpo", "pods 32->8", []),
    ("llama", "grpo", "pods 64->16", ["--metric", "both", "--until", "5400"]),
    ("h100s", "grpo_ga", "pods 128->32", WINDOW),
    ("a100s", "grpo_ga", "pods 128->32", WINDOW),
)
NUMBERS = ["estimate", "low", "high", "p", "p_holm", "exact_p_holm"]
SPEED = ["ratio", "low", "high", "bound", "steps_ratio"]


def tables(logs: str, baseline: str, arms: str, options: list[str], runs: Path) -> Path:
    """Compare the arms, and return the folder of the tables."""
    shown = ["--arms", f"{baseline},{arms}", "--baseline", baseline]
    command = ["pods", "compare", "--study", f"published-{logs}", "--runs-dir", str(runs)]
    words = [*command, *shown, *options]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return Path(printed.rpartition("tables: ")[2].splitlines()[0]).parent


def rows(logs: str, baseline: str, arms: str, options: list[str], runs: Path) -> pd.DataFrame:
    """Return a row per arm, the baseline first."""
    folder = tables(logs, baseline, arms, options, runs)
    means = pd.read_csv(folder / "compare.arms.csv").set_index("series")
    gains = pd.read_csv(folder / "compare.csv").query("outcome == 'mean_accuracy'")
    speed = pd.read_csv(folder / "compare.speedup.csv").query("kind == 'peak'")
    figures = (runs / f"published-{logs}/figures").glob("*.runs.csv")
    steps = pd.concat([pd.read_csv(path) for path in figures]).groupby("series").seconds_per_step
    made = (
        means[["runs", "mean_accuracy", "mean_accuracy_stderr"]]
        .join(steps.mean())
        .join(gains.set_index("series")[NUMBERS].add_prefix("gain_"))
        .join(speed.set_index("series")[SPEED].add_prefix("speedup_"))
        .rename_axis("arm")
        .reset_index()
    )
    made.insert(0, "logs", logs)
    made.insert(1, "baseline", gains.baseline.iloc[0])
    cost = made.set_index("arm").seconds_per_step / steps.mean()[made.baseline[0]]
    made.insert(6, "step_cost", cost.to_numpy())
    return made.sort_values("arm", key=lambda arm: arm != made.baseline[0], kind="stable")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    table = pd.concat([rows(*comparison, folder) for comparison in COMPARISONS])
    table.to_csv(HERE / "speedup.csv", index=False, float_format="%.6g")
    print(table.to_string(index=False))
