"""Hold the registered contrasts of a study against its runs.

Usage: python experiments/registered.py FOLDER

Reads FOLDER/predictions.csv (outcome, arm, over, expected, low, high; in points) and FOLDER/runs.csv,
pairs runs by seed, and writes FOLDER/registered.csv: what was expected of each contrast beside what
came out. Holm's correction counts the contrasts of an outcome that are registered.
"""

import sys
from pathlib import Path

import pandas as pd
from experiments.contrasts import contrast

from pods.analysis.compare.compare import with_holm


def registered(predictions: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per registered contrast."""
    rows = []
    for prediction in predictions.to_dict("records"):
        by_seed = runs.pivot(index="seed", columns="series", values=prediction["outcome"])
        differences = (by_seed[prediction["arm"]] - by_seed[prediction["over"]]).dropna()
        row = {
            "outcome": prediction["outcome"],
            "arm": prediction["arm"],
            "over": prediction["over"],
            "expected": prediction["expected"],
            "expected_low": prediction["low"],
            "expected_high": prediction["high"],
        }
        rows.append(row | contrast(differences.to_numpy(float)))
    return with_holm(pd.DataFrame(rows))


def main() -> None:
    """Write and print the table."""
    folder = Path(sys.argv[1])
    predictions = pd.read_csv(folder / "predictions.csv", comment="#")
    table = registered(predictions, pd.read_csv(folder / "runs.csv"))
    table.to_csv(folder / "registered.csv", index=False, float_format="%.6g")
    print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
