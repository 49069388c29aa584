"""Compare the max-variance rule with the direct form on the same rewards, in turns.

    python experiments/benchmarks/selection.py    prints milliseconds of each, medians, as CSV

The direct form sorts, then takes the variance of each of the m + 1 splits into highest and lowest.
It is quadratic in n, so it has fewer rounds where n is large. Both must find a set of the same
variance. Rewards are normal (no ties: the longest sort), or of five values as GSM8K has them.
"""

import statistics
import sys
import time

import numpy as np
import pandas as pd

from pods.method.rules import max_variance
from pods.types import Group

SIZES = ((64, 16), (64, 32), (512, 16), (512, 256), (1024, 512), (4096, 2048), (16384, 8192),
         (65536, 32768))  # fmt: skip
ROUNDS = 31
SECONDS = 10.0  # limit of the direct form at one size, which runs at least once


def direct(group: Group, m: int, rng: np.random.Generator) -> np.ndarray:
    """Return the split of largest variance, with the variance of all m + 1 splits computed."""
    order = np.argsort(group.rewards, kind="stable")
    # built one at a time: all at once would hold m^2 indices
    splits = (np.concatenate([order[: m - k], order[len(order) - k :]]) for k in range(m + 1))
    return max(splits, key=lambda kept: float(np.var(group.rewards[kept])))


def compare(rewards: np.ndarray, m: int) -> dict[str, float]:
    """Run both forms in turns; an AssertionError says that their sets differ in variance."""
    group = Group(rewards, rewards > 0, np.ones(len(rewards), dtype=np.int64))
    spent: dict[str, list[float]] = {"ours": [], "direct": []}
    for _ in range(ROUNDS):
        variances = []
        for name, rule in (("ours", max_variance), ("direct", direct)):
            if name == "ours" or sum(spent["direct"]) < 1000 * SECONDS:
                start = time.perf_counter()
                kept = rule(group, m, np.random.default_rng(0))
                spent[name].append(1000 * (time.perf_counter() - start))
                variances.append(float(np.var(rewards[kept])))
        np.testing.assert_allclose(variances[0], variances[-1], rtol=1e-9)
    ours, plain = (statistics.median(of) for of in spent.values())
    return {"ours_ms": ours, "direct_ms": plain, "ratio": plain / ours,
            "direct_rounds": len(spent["direct"])}  # fmt: skip


if __name__ == "__main__":
    rng, rows = np.random.default_rng(0), []
    for n, m in SIZES:
        kinds = {"normal": rng.normal(size=n), "five values": rng.choice([0, 0.25, 1, 1.25, 2], n)}
        rows += [{"n": n, "m": m, "rewards": kind} | compare(of, m) for kind, of in kinds.items()]
    pd.DataFrame(rows).to_csv(sys.stdout, index=False, float_format="%.5g")
