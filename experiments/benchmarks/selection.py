"""Compare the max-variance rule with the direct form on the same rewards, in turns.

    python experiments/benchmarks/selection.py

The direct form sorts, then takes the variance of each of the m + 1 splits into highest and lowest.
It is quadratic in n, so it has fewer rounds where n is large. Both must find a set of the same
variance. Rewards are drawn from a normal distribution (no ties: the longest sort) and from the
reward values of GSM8K. The script prints JSON: median milliseconds of each, and the ratio.
"""

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pods.method.rules import max_variance
from pods.runs.attempts import environment
from pods.types import Group

SIZES = ((64, 16), (64, 32), (512, 16), (512, 256), (1024, 512), (4096, 2048), (16384, 8192),
         (65536, 32768))  # fmt: skip
ROUNDS = 31
SECONDS = 10.0  # limit of the direct form at one size, which runs at least once
Rewards = NDArray[np.float64]


def direct(rewards: Rewards, m: int) -> NDArray[np.intp]:
    """Return the split of largest variance, with the variance of all m + 1 splits computed."""
    order = np.argsort(rewards, kind="stable")
    # built one at a time: all at once would hold m^2 indices
    splits = (np.concatenate([order[: m - k], order[len(order) - k :]]) for k in range(m + 1))
    return max(splits, key=lambda kept: float(np.var(rewards[kept])))


def timed(rule: Callable[[], NDArray[np.intp]], rewards: Rewards) -> tuple[float, float]:
    """Return the seconds, and the variance of the kept rewards."""
    start = time.perf_counter()
    kept = rule()
    return time.perf_counter() - start, float(np.var(rewards[kept]))


def compare(rewards: Rewards, m: int) -> dict[str, float]:
    """Run both forms in turns, and return the medians in milliseconds.

    Raises:
        AssertionError: the sets differ in variance.
    """
    mine, theirs = [], []
    group = Group(rewards, rewards > 0, np.ones(len(rewards), dtype=np.int64))
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        seconds, best = timed(lambda: max_variance(group, m, rng), rewards)
        mine.append(seconds)
        if sum(theirs) < SECONDS:
            seconds, variance = timed(lambda: direct(rewards, m), rewards)
            theirs.append(seconds)
            np.testing.assert_allclose(best, variance, rtol=1e-9)
    rule, plain = statistics.median(mine), statistics.median(theirs)
    return {"ours_ms": 1000 * rule, "direct_ms": 1000 * plain, "ratio": plain / rule,
            "direct_rounds": len(theirs)}  # fmt: skip


def main() -> None:
    """Compare the forms at every size, and print the results."""
    rng, rows = np.random.default_rng(0), []
    for n, m in SIZES:
        kinds = {"normal": rng.normal(size=n),
                 "five values": rng.choice([0.0, 0.25, 1.0, 1.25, 2.0], n)}  # fmt: skip
        for kind, rewards in kinds.items():
            rows.append({"n": n, "m": m, "rewards": kind, **compare(rewards, m)})
    print(json.dumps({"sizes": rows, "environment": environment()}, indent=1))


if __name__ == "__main__":
    main()
