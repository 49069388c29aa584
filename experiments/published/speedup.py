"""Compare arms of the authors' logs with a baseline, by right answers and by answers in the form.

Usage: python experiments/published/speedup.py [FOLDER]

FOLDER is the authors' release (default: where `pods reproduce` keeps it). Writes speedup.csv, a row
per arm and metric, with the numbers that `pods compare` writes: the difference in the mean over the
window, and how many times as fast the arm is at 99 % of the baseline's best. Writes form.csv: how
many runs of an arm lose the format at some checkpoint.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pods.analysis.compare.compare import compare
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.numbers.tables import run_table
from pods.runs.paths import pods_home
from pods_lab.published.release import read_release

HERE = Path(__file__).parent
LOST_FORM = 0.3  # of the answers: a run with fewer in the format at a checkpoint has lost it
CONTRAST_COLUMNS = ["estimate", "low", "high", "p", "p_holm"]
SPEEDUP_COLUMNS = ["ratio", "low", "high", "bound", "steps_ratio"]


@dataclass(frozen=True)
class Family:
    """The arms of some logs that are compared with one baseline, by one metric."""

    logs: str
    baseline: str
    arms: tuple[str, ...]
    metric: str


GSM8K_ARMS = ("pods 32->16", "pods 64->16", "pods 128->16", "pods 256->16", "pods 64->8")
FAMILIES = (
    Family("gsm8k", "grpo", GSM8K_ARMS, "accuracy"),
    Family("gsm8k", "grpo", ("pods 64->16",), "both"),
    Family("gsm8k", "random 64->16", ("pods 64->16",), "accuracy"),
    Family("math", "grpo", ("pods 32->8",), "accuracy"),
    Family("math", "grpo", ("pods 32->8",), "both"),
    Family("llama", "grpo", ("pods 64->16",), "accuracy"),
    Family("llama", "grpo", ("pods 64->16",), "both"),
    Family("h100s", "grpo_ga", ("pods 128->32",), "accuracy"),
    Family("a100s", "grpo_ga", ("pods 128->32",), "accuracy"),
)


def compare_family(folder: Path, family: Family) -> pd.DataFrame:
    """Return a row per arm, the baseline first."""
    study = read_release(folder, family.logs).study(family.logs)
    chosen = StudyFilter(
        (family.baseline, *family.arms), family.metric, baseline=family.baseline
    )
    comparison = compare(apply_filter(study, chosen))
    contrasts = comparison.contrasts.query("outcome == 'mean_accuracy'").set_index("series")
    speedups = comparison.speedups.query("kind == 'peak'").set_index("series")
    seconds = run_table(comparison.study).groupby("series").seconds_per_step.mean()
    baseline = contrasts.baseline.iloc[0]

    arms = comparison.arms.set_index("series")
    table = arms[["runs", "mean_accuracy", "mean_accuracy_stderr"]].join(seconds)
    table = table.join(contrasts[CONTRAST_COLUMNS].add_prefix("gain_"))
    table = table.join(speedups[SPEEDUP_COLUMNS].add_prefix("speedup_"))
    table.insert(3, "step_cost", table.seconds_per_step / table.seconds_per_step[baseline])
    table = table.rename_axis("arm").reset_index()
    table.insert(0, "logs", family.logs)
    table.insert(1, "baseline", baseline)
    table.insert(2, "metric", family.metric)
    return table.sort_values("arm", key=lambda arm: arm != baseline, kind="stable")


def runs_that_lose_the_form(folder: Path) -> pd.DataFrame:
    """Return by arm of the GSM8K logs how many runs are below `LOST_FORM` at some checkpoint."""
    evaluations = read_release(folder, "gsm8k").study("gsm8k").evaluations
    lowest = evaluations.groupby(["series", "run"]).format.min()
    lost = (lowest < LOST_FORM).groupby("series").agg(["size", "sum"])
    return lost.set_axis(["runs", "lost"], axis=1).rename_axis("arm").reset_index()


def main() -> None:
    """Write the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else pods_home() / "published"
    rows = pd.concat([compare_family(folder, family) for family in FAMILIES])
    rows.to_csv(HERE / "speedup.csv", index=False, float_format="%.6g")
    runs_that_lose_the_form(folder).to_csv(HERE / "form.csv", index=False)


if __name__ == "__main__":
    main()
