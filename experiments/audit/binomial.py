"""Say what published scores of one run each can show: binomial intervals, from the test set alone.

python experiments/audit/binomial.py       # binomial.csv from public.csv, both beside it
"""

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
NORMAL = 1.96


def intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the standard errors of a table's last scores, and the difference to its first row.

    `these` is the error if the same questions were answered again by the same weights, at most that
    of answers with equal chances; `new` is that with other questions. The interval of the
    difference is by `these`. No number here knows how runs differ by their seeds.
    """
    p, first = rows["last"], rows.iloc[0]
    these = (p * (1 - p) / (rows.questions * rows.answers)) ** 0.5
    half = NORMAL * (these**2 + these.iloc[0] ** 2) ** 0.5
    estimate = (p - first["last"]).where(rows.index != rows.index[0])
    found = rows.assign(these=these, new=(p * (1 - p) / rows.questions) ** 0.5)
    found = found.assign(
        gain_estimate=estimate, gain_low=estimate - half, gain_high=estimate + half
    )
    return found.assign(times=(first.minutes / rows.minutes).where(estimate.notna()))


if __name__ == "__main__":
    published = pd.read_csv(HERE / "public.csv", comment="#")
    parts = [intervals(rows) for _, rows in published.groupby("table", sort=False)]
    pd.concat(parts).to_csv(HERE / "binomial.csv", index=False, float_format="%.6g")
