"""Compare an arm with others by the runs of a committed runs.csv, paired over seeds.

Usage: python experiments/contrasts.py FOLDER ARM OTHER [OTHER ...]
       python experiments/contrasts.py experiments/quickstart "pods 64→16" "random 64→16"

ARM may be a difference, "ARM - ARM", compared with others. Writes contrasts.ARM.csv (of
differences contrasts.ARM.losses.csv) into the folder: 95 % t intervals, p of the paired t test, and
p after Holm over the contrasts of one outcome. `pods compare` prints the same for a study.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import with_holm
from pods.analysis.numbers.statistics import t_test

OUTCOMES = ("mean_accuracy", "final_accuracy", "pass@2", "pass@5")


def contrast(differences: np.ndarray) -> dict[str, float]:
    """Test (S,) differences of paired runs against 0."""
    test = t_test(differences)
    return {
        "seeds": len(differences),
        "estimate": test.estimate,
        "low": test.low,
        "high": test.high,
        "higher": int((differences > 0).sum()),
        "p": test.p,
    }


def values(by_seed: pd.DataFrame, name: str) -> pd.Series:
    """Return the values of an arm by seed, or the difference of two."""
    first, _, second = name.partition(" - ")
    return by_seed[first] - by_seed[second] if second else by_seed[first]


def contrasts(runs: pd.DataFrame, arm: str, others: list[str]) -> pd.DataFrame:
    """Return a row per outcome and arm: its mean, and how far the first arm is ahead of it."""
    rows = []
    for outcome in OUTCOMES:
        if outcome not in runs:
            continue
        by_seed = runs.pivot(index="seed", columns="series", values=outcome)
        arm_values = values(by_seed, arm)
        for series in [arm, *others]:
            series_values = values(by_seed, series)
            row = {
                "outcome": outcome,
                "arm": arm,
                "series": series,
                "value": series_values.mean(),
                "value_stderr": series_values.sem(),
            }
            if series != arm:
                pairs = (arm_values - series_values).dropna()
                row |= contrast(pairs.to_numpy(float))
            rows.append(row)
    return with_holm(pd.DataFrame(rows))


def main() -> None:
    """Write the table that the words of the command ask for."""
    name, arm, *others = sys.argv[1:]
    folder = Path(name)
    table = contrasts(pd.read_csv(folder / "runs.csv"), arm, others)

    kind = ".losses" if " - " in arm else ""
    path = folder / f"contrasts.{arm.split()[0]}{kind}.csv"
    table.to_csv(path, index=False, float_format="%.6g")
    print(table.to_string(index=False), f"\n\n{path}")


if __name__ == "__main__":
    main()
