"""Write speedup.csv: arms of the authors' logs against a baseline, one line per pair.

Usage: python experiments/published/speedup.py [FOLDER]

FOLDER is the authors' release (default: where `pods reproduce` keeps it). The numbers are those
that `pods compare` writes: the difference in mean accuracy over the window, and how many times as
fast the arm is at 99 % of the baseline's best.
"""

import sys
from pathlib import Path

import pandas as pd

from pods.analysis.compare.compare import compare
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.numbers.tables import run_table
from pods.runs.paths import pods_home
from pods_lab.published.release import read_release

HERE = Path(__file__).parent
N_AND_M = ("pods 32->16", "pods 64->16", "pods 128->16", "pods 256->16", "pods 64->8")
COMPARISONS = (  # logs, baseline, arms, metric
    ("gsm8k", "grpo", N_AND_M, "accuracy"),
    ("gsm8k", "random 64->16", ("pods 64->16",), "accuracy"),
    ("math", "grpo", ("pods 32->8",), "accuracy"),
    ("llama", "grpo", ("pods 64->16",), "both"),
    ("h100s", "grpo_ga", ("pods 128->32",), "accuracy"),
    ("a100s", "grpo_ga", ("pods 128->32",), "accuracy"),
)
NUMBERS = ["estimate", "low", "high", "p", "p_holm"]
SPEED = ["ratio", "low", "high", "bound", "steps_ratio"]


def rows(
    folder: Path, logs: str, baseline: str, arms: tuple[str, ...], metric: str
) -> pd.DataFrame:
    """Return a row per arm, the baseline first."""
    study = read_release(folder, logs).study(logs)
    chosen = StudyFilter((baseline, *arms), metric, baseline=baseline)
    found = compare(apply_filter(study, chosen))
    gains = found.contrasts.query("outcome == 'mean_accuracy'")
    speed, base = found.speedups.query("kind == 'peak'"), gains.baseline.iloc[0]
    made = (
        found.arms.set_index("series")[["runs", "mean_accuracy", "mean_accuracy_stderr"]]
        .join(run_table(found.study).groupby("series").seconds_per_step.mean())
        .join(gains.set_index("series")[NUMBERS].add_prefix("gain_"))
        .join(speed.set_index("series")[SPEED].add_prefix("speedup_"))
    )
    made.insert(3, "step_cost", made.seconds_per_step / made.seconds_per_step[base])
    made = made.rename_axis("arm").reset_index()
    made.insert(0, "logs", logs)
    made.insert(1, "baseline", base)
    return made.sort_values("arm", key=lambda arm: arm != base, kind="stable")


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else pods_home() / "published"
    parts = [rows(place, *comparison) for comparison in COMPARISONS]
    pd.concat(parts).to_csv(HERE / "speedup.csv", index=False, float_format="%.6g")
