"""What the PODS authors' logs show, beside what formula.py expected of them.

    python -m experiments.law.published FOLDER

FOLDER is the authors' release. Writes logs.csv (a row per arm and quantity) and
published.fit.csv (how well each formula does).
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.curves import report
from experiments.law import formula as law
from scipy.stats import linregress

from pods.analysis.compare.speedup import speedups
from pods.analysis.numbers.outcomes import Window
from pods.analysis.numbers.statistics import resamples, welch_test

RESAMPLES = 10_000
TIMED = ["ratio", "low", "high", "reached", "runs", "baseline_reached", "baseline_runs"]


def measured(folder: Path) -> Iterator[law.Row]:
    """Yield medians of interpolated runs and Welch's differences, with 95 % intervals over runs.

    A run that has not arrived after its six hours never does.
    """
    for logs in law.ARMS:
        by_steps = [[replace(run, seconds=run.steps) for run in runs]
                    for runs in law.curves_of(folder, logs).values()]  # fmt: skip
        last = slice(-law.LAST, None)
        levels = [np.array([100 * run.accuracy[last].mean() for run in of]) for of in by_steps]
        for arm, runs, level in zip(law.ARMS[logs][1:], by_steps[1:], levels[1:], strict=True):
            draws = resamples([len(runs), len(levels[0])], RESAMPLES, 0)
            shares, span = [target / 100 for target in law.TARGETS[logs]], Window(0, math.inf)
            rows = speedups(runs, by_steps[0], shares, span, (draws[0], draws[1]))
            for target, timed in zip(law.TARGETS[logs], rows, strict=False):
                numbers = {key: timed[key] for key in TIMED}
                yield law.row(logs, arm, law.STEPS.format(target), **numbers)
            test = welch_test(level, levels[0])
            yield law.row(logs, arm, law.LEVEL, ratio=test.estimate, low=test.low, high=test.high)


def agreement(both: pd.DataFrame) -> Iterator[law.Row]:
    """Yield how well each formula does on the arms that it was not fitted to.

    A line of log measured on log expected ratios (for points: of points), without rows in which
    either is 0 or infinite, and without max-reward, which would be all of the line of points.
    `held` are the rows whose measured value is in the expected range.
    """
    both = both[both.arm != f"GSM8K {law.FITTED}"]
    for (formula, level), of in both.groupby(["formula", both.quantity == law.LEVEL], sort=False):
        with np.errstate(divide="ignore"):
            x, y = (v if level else np.log(v) for v in (of.expected, of.ratio))
        finite = np.isfinite(x) & np.isfinite(y) & ~of.arm.str.contains("max_reward")
        line = linregress(x[finite], y[finite])
        yield {"formula": formula, "of": "points" if level else "ratios", "rows": len(of),
               "held": of.ratio.between(of.low_expected, of.high_expected).sum(),
               "on_line": finite.sum(), "slope": line.slope, "slope_stderr": line.stderr,
               "intercept": line.intercept, "intercept_stderr": line.intercept_stderr}  # fmt: skip


if __name__ == "__main__":
    table = pd.DataFrame(measured(Path(sys.argv[1])))
    known = pd.read_csv(law.HERE / "predictions.csv").query("part == 'a'")
    wide = known.pivot(index=law.KEYS, columns="formula", values=law.ENDS)
    wide.columns = pd.Index([f"{formula} {end}" for end, formula in wide.columns])
    report(table.merge(wide.reset_index(), on=law.KEYS), law.HERE / "logs.csv")
    both = known.merge(table, on=law.KEYS, suffixes=("_expected", ""))
    report(pd.DataFrame(agreement(both)), law.HERE / "published.fit.csv")
