"""Adaptive n against every fixed n, by start policy: writes adaptive.csv and regret.csv.

python -m experiments.adaptive.adaptive    reads ../regimes/regimes.runs.csv

Differences of mean accuracy over the window, paired over seeds, with 95 % t intervals. Holm's
method is over the rows of each fixed arm. The regret of an arm is what it is behind the best fixed
one of a start.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from experiments.contrasts import contrast, with_holm
from experiments.curves import report

HERE = Path(__file__).parent
ADAPTIVE = "adaptive 16-64→16"
FIXED = ("grpo 16→16", "pods 32→16", "pods 64→16")
ALL = "mean of the four"


def rows(runs: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield a row per start (and the mean over the starts) and fixed arm."""
    table = runs.pivot_table("mean_accuracy", ["start", "seed"], "arm")
    starts = {str(start): table.loc[start] for start in runs.start.unique()}
    for start, values in (starts | {ALL: table.groupby("seed").mean()}).items():
        for other in FIXED:
            difference = (values[ADAPTIVE] - values[other]).to_numpy(float)
            yield {"start": start, "other": other} | contrast(difference)


def regrets(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the largest and the mean regret of each arm over the starts."""
    table = runs.pivot_table("mean_accuracy", "start", "arm")[[*FIXED, ADAPTIVE]]
    behind = -table.sub(table[[*FIXED]].max(axis=1), axis=0)
    return behind.clip(lower=0).agg(["max", "mean"]).T.add_prefix("regret_").reset_index()


if __name__ == "__main__":
    regime_runs = pd.read_csv(HERE.parent / "regimes" / "regimes.runs.csv")
    found = with_holm(pd.DataFrame(rows(regime_runs)), "other")
    for name, table in (("adaptive", found), ("regret", regrets(regime_runs))):
        report(table, HERE / f"{name}.csv")
