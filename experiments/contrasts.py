"""Compare an arm with others by the runs of a committed runs.csv, paired over seeds.

Usage: python experiments/contrasts.py FOLDER[,FOLDER...] ARM OTHER [OTHER ...]
       python experiments/contrasts.py experiments/quickstart "pods 64→16" "random 64→16"

ARM may be a difference, "ARM - ARM", compared with others. Runs of several folders are compared
together, each pair within its folder. Writes contrasts.ARM.csv (contrasts.ARM.losses.csv, of
several folders contrasts.ARM.together.csv) into the first: t intervals, p of the t test and of the
exact sign-flip test, and both after Holm over the contrasts of one outcome. `pods compare` prints
the same for a study.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import with_holm
from pods.analysis.numbers.statistics import sign_flip, t_test

OUTCOMES = ("mean_accuracy", "final_accuracy", "pass@2", "pass@5")


def contrast(differences: np.ndarray) -> dict[str, float]:
    """Test (S,) differences of paired runs against 0."""
    test = t_test(differences)
    return {
        "seeds": len(differences), "estimate": test.estimate, "low": test.low, "high": test.high,
        "higher": int((differences > 0).sum()), "p": test.p if differences.any() else 1.0,
        "exact_p": sign_flip(differences).p,
    }  # fmt: skip


def values(by_seed: pd.DataFrame, name: str) -> pd.Series:
    """Return the values of an arm by seed, or the difference of two."""
    first, _, second = name.partition(" - ")
    return by_seed[first] - by_seed[second] if second else by_seed[first]


def contrasts(runs: pd.DataFrame, arm: str, others: list[str]) -> pd.DataFrame:
    """Return a row per outcome and arm: its mean, and how far the first arm is ahead of it."""
    rows = []
    for outcome in [name for name in OUTCOMES if name in runs]:
        by_seed = runs.pivot(index=["folder", "seed"], columns="series", values=outcome)
        for other in [arm, *others]:
            row = {"outcome": outcome, "arm": arm, "series": other}
            of_other = values(by_seed, other)
            row |= {"value": of_other.mean(), "value_stderr": of_other.sem()}
            ahead = (values(by_seed, arm) - of_other).dropna().to_numpy(float)
            rows.append(row | (contrast(ahead) if other != arm else {}))
    return with_holm(pd.DataFrame(rows))


if __name__ == "__main__":
    names, arm, *others = sys.argv[1:]
    folders = [Path(name) for name in names.split(",")]
    tables = [pd.read_csv(folder / "runs.csv").assign(folder=str(folder)) for folder in folders]
    made = contrasts(pd.concat(tables), arm, others)
    kind = ".losses" * (" - " in arm) + ".together" * (len(folders) > 1)
    path = folders[0] / f"contrasts.{arm.split()[0]}{kind}.csv"
    made.to_csv(path, index=False, float_format="%.6g")
    print(made.to_string(index=False), f"\n\n{path}")
