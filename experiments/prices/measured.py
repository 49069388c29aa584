"""Compare the leads that were measured with the registered signs: predictions.csv, measured.csv.

    python -m experiments.prices.measured STUDY FOLDER

Reads runs/STUDY and FOLDER/predictions.csv. A lead is the difference of mean accuracy at equal
cost, from 0 to where the first of the registered arms ends, if a rollout trained on costs r
generated ones and nothing is fixed.
"""

import sys
from pathlib import Path

import pandas as pd

from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.prices import at_prices
from pods.runs.store import run_folders
from pods_lab.price.pays import card_of, leads, mean_step

ARMS = ("grpo 8→8", "grpo 16→16", "pods 16→8", "pods 64→16", "random 64→16", "grpo_ga 64→64")
BASELINE = "grpo 16→16"


def measured(folder: Path, predictions: pd.DataFrame) -> pd.DataFrame:
    """Add to each prediction the measured lead, its 95 % interval and its sign."""
    study = apply_filter(load(folder, run_folders(folder), priced=True), StudyFilter(arms=ARMS))
    step = mean_step(study, BASELINE)
    rows = []
    for expected in predictions.to_dict("records"):
        priced = at_prices(study, card_of(step, expected["r"], 0.0))
        [lead] = [
            row for row in leads(priced, expected["over"], {}) if row["series"] == expected["arm"]
        ]
        sign = "ahead" if lead["estimate"] > 0 else "behind"
        told = lead["low"] > 0 or lead["high"] < 0
        rows.append(
            expected
            | {
                "seeds": lead["runs"],
                "estimate": lead["estimate"],
                "low": lead["low"],
                "high": lead["high"],
                "measured": sign if told else "not told apart",
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    study, folder = sys.argv[1:]
    registered = pd.read_csv(Path(folder) / "predictions.csv")
    table = measured(Path("runs") / study, registered)
    table.to_csv(Path(folder) / "measured.csv", index=False, float_format="%.6g")
    print(table.to_string(index=False))
