"""Say what published scores of one run each can show: binomial intervals, from the test set alone.

python experiments/audit/binomial.py       # binomial.csv from public.csv, both beside it

`these` is the standard error if the same questions were answered again by the same weights, at most
that of answers with equal chances; `new` is that with other questions. The interval of the
difference to a table's first row is by `these`. Nothing here knows how runs differ by seed.
"""

from pathlib import Path

import pandas as pd

if __name__ == "__main__":
    rows = pd.read_csv(Path(__file__).with_name("public.csv"), comment="#")
    p, first = rows["last"], rows.groupby("table").transform("first")
    rows["these"] = (p * (1 - p) / (rows.questions * rows.answers)) ** 0.5
    rows["new"] = (p * (1 - p) / rows.questions) ** 0.5
    half = 1.96 * (rows.these**2 + rows.groupby("table").these.transform("first") ** 2) ** 0.5
    estimate = (p - first["last"]).where(rows.run != first.run)
    rows = rows.assign(gain_estimate=estimate, gain_low=estimate - half, gain_high=estimate + half)
    rows["times"] = (first.minutes / rows.minutes).where(estimate.notna())
    rows.to_csv(Path(__file__).with_suffix(".csv"), index=False, float_format="%.6g")
