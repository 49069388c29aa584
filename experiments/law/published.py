"""What the PODS authors' logs show, beside what the law expects of them.

    python -m experiments.law.published FOLDER

FOLDER is the authors' release. Writes logs.csv (each arm over GRPO 16→16, beside predictions.csv)
and fixed_n.csv (64→m over 64→16: the same pool, so that only m differs).
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
from experiments.curves import report
from experiments.law import formula as law

from pods.analysis.compare.speedup import speedups
from pods.analysis.numbers.outcomes import RunCurve, Window
from pods.analysis.numbers.statistics import resamples

RESAMPLES = 10_000
TARGETS_AT_FIXED_N = (77, 79, 80, 81, 82)  # percent of GSM8K; the runs start at about 60
TIMED = ("ratio", "low", "high", "reached", "runs", "baseline_reached", "baseline_runs")


def counted_in_steps(runs: list[RunCurve]) -> list[RunCurve]:
    """Return runs whose clock counts training steps."""
    return [replace(run, seconds=run.steps) for run in runs]


def timed(
    runs: list[RunCurve], baseline: list[RunCurve], targets: tuple[int, ...]
) -> Iterator[tuple[int, law.Row]]:
    """Yield each target in percent with the ratio of median steps, 95 % over resampled runs.

    A run that has not arrived after its six hours never does.
    """
    draws = resamples([len(runs), len(baseline)], RESAMPLES, 0)
    shares = [target / 100 for target in targets]
    rows = speedups(runs, baseline, shares, Window(0, math.inf), (draws[0], draws[1]))
    for target, row in zip(targets, rows, strict=False):
        yield target, {key: row[key] for key in TIMED}


def over_grpo(folder: Path) -> Iterator[law.Row]:
    """Yield a row per arm and target: how many times fewer steps than GRPO with n = m."""
    for logs, targets in law.TARGETS.items():
        curves = law.curves_of(folder, logs)
        base_arm = law.ARMS[logs][0]
        baseline = counted_in_steps(curves[base_arm])
        for arm in law.ARMS[logs][1:]:
            for target, numbers in timed(counted_in_steps(curves[arm]), baseline, targets):
                row = {
                    "part": "a",
                    "arm": f"{logs} {arm}",
                    "over": f"{logs} {base_arm}",
                    "quantity": law.STEPS.format(target),
                }
                yield row | numbers


def at_fixed_n(folder: Path) -> Iterator[law.Row]:
    """Yield a row per arm and target: how many times fewer steps than 64→16, of the same pool."""
    curves = law.curves_of(folder, "GSM8K")
    baseline = counted_in_steps(curves[law.PODS])
    for arm in law.AT_FIXED_N:
        runs = counted_in_steps(curves[arm])
        for target, numbers in timed(runs, baseline, TARGETS_AT_FIXED_N):
            yield {"arm": f"GSM8K {arm}", "target": target} | numbers


def main() -> None:
    """Write the tables."""
    folder = Path(sys.argv[1])

    table = pd.DataFrame(over_grpo(folder))
    known = pd.read_csv(law.HERE / "predictions.csv")
    known = known[(known.part == "a") & ~known.formula.str.contains("floor")]
    wide = known.pivot(index=law.KEYS, columns="formula", values=law.ENDS)
    wide.columns = pd.Index([f"{formula} {end}" for end, formula in wide.columns])
    report(table.merge(wide.reset_index(), on=law.KEYS), law.HERE / "logs.csv")

    measured = pd.DataFrame(at_fixed_n(folder))
    expected = pd.DataFrame(law.expected_at_fixed_n())
    both = measured.merge(expected, on="arm")
    both["in_range"] = both.ratio.between(both.expected_low, both.expected_high)
    report(both, law.HERE / "fixed_n.csv")


if __name__ == "__main__":
    main()
