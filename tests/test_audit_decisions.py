"""What an audit asks for where nothing is told apart: as many seeds as a power analysis says."""

import re

import numpy as np
import pytest
from data_files import write_rows
from scipy import stats

from pods import audit, compare
from pods_lab.audit.extras import decisions


def test_so_many_seeds_are_asked_for_as_are_lacking(tmp_path):
    """The differences of eight pairs: 1 point in the mean, with a standard deviation of 2.27."""
    differences = [3, -1, 2, 0, 4, -2, 3, -1]
    for seed, difference in enumerate(differences):
        for method, more in (("grpo", 0), ("pods", difference)):
            score = 0.5 + 0.01 * (seed + more)
            rows = [{"step": step, "accuracy": score} for step in (10, 20)]
            write_rows(tmp_path / f"{method}-seed{seed}.jsonl", rows)
    effect = 1 / np.std(differences, ddof=1)

    def power(n: int) -> float:
        return stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, effect * n**0.5)

    needed = next(n for n in range(2, 999) if power(n) >= 0.8)
    line = next(decisions(compare(audit(tmp_path), draws=9)))
    more = int(re.search(r"About (\d+) more seeds", line)[1])
    assert line.startswith("Not told apart (paired t test, 8 pairs)")
    assert more == pytest.approx(needed - 8, abs=1)
