"""What the runs of parts b to e gained, beside what predictions.csv expected of them.

    python -m experiments.law.measure [RUNS]     reads the studies RUNS/law_PART (default: runs)
    python -m experiments.law.measure --again    reads runs.csv

Writes runs.csv (a row per run), held.csv (a row per arm and quantity) and held.fit.csv. A ratio is
that of the steps in which the mean curves of GRPO and of an arm go a share of GRPO's way, from its
start to its highest, with 95 % over resampled seeds; 0: the arm does not arrive. Part d has five
policies of a success rate, and their mean of log ratios with a t interval over policies.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import report
from experiments.law.predictions import FORMULAS, GRPO, HALF, SIGN

from pods.analysis.loading.run_reader import Run, open_run
from pods.analysis.numbers.statistics import t_test
from pods.runs.store import run_folders

HERE, ENDS = Path(__file__).parent, ("expected", "low", "high")
DRAWS = 2000
PARTS = ["part", "start", "prompts", "lr"]
HALFWAY = 0.5
NORMAL_95 = 1.96  # standard errors that a 95 % interval has on each side
Curves, Row = dict[str, np.ndarray], dict[str, object]


def measured(run: Run) -> Row:
    """Return a run's settings, pass@k at its end, and its curve."""
    config, steps = run.config, sorted(run.means)
    accuracy = [run.means[step]["accuracy"] for step in steps]
    return {
        "part": run.store.folder.parents[2].name.split("_")[1],
        "start": config.model.name, "prompts": config.prompts_per_step,
        "lr": config.update.lr, "arm": f"{config.arm_name()} {config.nm.n}→{config.nm.m}",
        "seed": config.seed,
        **{f"pass@{k}": run.means[steps[-1]][f"pass@{k}"] for k in (1, 2, 5)},
        "steps": " ".join(map(str, steps)), "accuracy": " ".join(f"{a:.5g}" for a in accuracy),
    }  # fmt: skip


def steps_to(target: float, curves: np.ndarray, steps: np.ndarray) -> float:
    """Return the steps in which the mean of curves (seeds, points) first has the target, or inf.

    NaN: unknown, since a point of a curve is.
    """
    mean = np.maximum.accumulate(curves.mean(0))
    if np.isnan(mean).any() or np.isnan(target):
        return np.nan
    if mean[-1] < target:
        return np.inf
    return max(float(np.interp(target, mean, steps)), 1e-9)


def ratio(grpo: np.ndarray, arm: np.ndarray, steps: np.ndarray) -> float:
    """Return GRPO's steps over the arm's to half of GRPO's way, of curves (seeds, points)."""
    mean = np.maximum.accumulate(grpo.mean(0))
    target = mean[0] + HALFWAY * (mean[-1] - mean[0])
    return steps_to(target, grpo, steps) / steps_to(target, arm, steps)


def with_interval(grpo: np.ndarray, arm: np.ndarray, steps: np.ndarray) -> Row:
    """Return the ratio with 95 % over seeds, resampled alike for both arms.

    Fewer than six seeds have no interval.
    """
    seeds = len(grpo)
    measured = ratio(grpo, arm, steps)
    if seeds < 6:
        return {"seeds": seeds, "measured": measured}

    drawn = np.random.default_rng(0).integers(seeds, size=(DRAWS, seeds))
    ratios = [ratio(grpo[draw], arm[draw], steps) for draw in drawn]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {"seeds": seeds, "measured": measured, "low": low, "high": high}


def curves_of(group: pd.DataFrame) -> tuple[Curves, np.ndarray]:
    """Return the curves of each arm, of the seeds that all arms have, and their steps."""
    paired = group[group.groupby("seed").arm.transform("nunique") == group.arm.nunique()]
    steps = np.array(group.steps.iloc[0].split(), float)
    return {str(arm): np.array([row.split() for row in each.accuracy], float)
            for arm, each in paired.sort_values("seed").groupby("arm")}, steps  # fmt: skip


def held(runs: pd.DataFrame) -> Iterator[Row]:
    """Yield what was measured of each arm against GRPO, and of pass@5 against a random choice."""
    for (part, start, prompts, rate), group in runs.groupby(PARTS, sort=False):
        of = f" B={prompts}" if part == "b" else f" lr={rate}" if part == "e" else ""
        curves, steps = curves_of(group)
        for arm in sorted({*curves} - {GRPO}):
            row = {"part": part, "arm": f"{start}{of} {arm}"}
            yield row | {"quantity": HALF} | with_interval(curves[GRPO], curves[arm], steps)
            if part == "c" and arm != "random 64→16":
                by_seed = group.pivot(index="seed", columns="arm", values="pass@5").dropna()
                test = contrast(100 * (by_seed[arm] - by_seed["random 64→16"]).to_numpy(float))
                ends = {key: test[key] for key in ("seeds", "low", "high")}
                yield row | {"quantity": SIGN, "measured": test["estimate"]} | ends


def over_policies(table: pd.DataFrame, runs: pd.DataFrame) -> Iterator[Row]:
    """Yield for each success rate and arm the mean over policies of log measured and expected.

    The ends of an expected interval are means, too, as if the errors of all pilots were one.
    """
    first = 100 * runs.accuracy.str.split().str[0].astype(float)
    right = first[runs.part == "d"].groupby(runs.start.str[-2:]).mean()
    of = table[table.part == "d"].copy()
    of[["rate", "of_arm"]] = of.arm.str.extract(r"_(\d+) (.*)")
    expected = [f"{formula} {end}" for formula in ("shipped", *FORMULAS) for end in ENDS]
    for (rate, arm), group in of.groupby(["rate", "of_arm"]):
        test = t_test(np.log(group.measured.to_numpy(float)))
        measured, low, high = np.exp([test.estimate, test.low, test.high])
        row = {"arm": f"{right[rate]:.0f} % {arm}", "quantity": HALF, "seeds": len(group)}
        row |= {"part": "d", "measured": measured, "low": low, "high": high}
        yield row | np.exp(np.log(group[expected]).mean()).to_dict()


def agreement(table: pd.DataFrame) -> Iterator[Row]:
    """Yield how many rows agree with each formula: to 1.96 standard errors of both logarithms.

    A standard error is the width of the interval's logarithm over 2 x 1.96. Rows of a part share
    GRPO's runs, so they are not independent.
    """
    rows = table[(table.quantity == HALF) & table.low.notna()]
    width = 2 * NORMAL_95
    measured_error = np.log(rows.high / rows.low) / width
    for formula in ("shipped", *FORMULAS):
        expected, low, high = (rows[f"{formula} {end}"] for end in ENDS)
        expected_error = np.log(high / low) / width
        distance = np.log(rows.measured / expected).abs()
        within = distance <= NORMAL_95 * np.hypot(measured_error, expected_error)
        yield {"formula": formula, "rows": len(rows), "within": int(within.sum())}


def main() -> None:
    """Write the tables."""
    path = HERE / "runs.csv"
    if "--again" not in sys.argv:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
        opened = [open_run(each) for of in sorted(folder.glob("law_*")) for each in run_folders(of)]
        made = pd.DataFrame(measured(run) for run in opened if run.state == "done")
        made.sort_values([*PARTS, "arm", "seed"]).to_csv(path, index=False, float_format="%.6g")
    runs = pd.read_csv(path)
    found = pd.DataFrame(held(runs))
    expected = pd.read_csv(HERE / "predictions.csv").query("part != 'a'")
    wide = expected.pivot(index=["arm", "quantity"], columns="formula", values=[*ENDS])
    wide.columns = pd.Index([f"{formula} {end}" for end, formula in wide.columns])
    table = found.merge(wide.reset_index(), on=["arm", "quantity"], how="left")
    table = pd.concat([table, pd.DataFrame(over_policies(table, runs))])
    report(table, HERE / "held.csv")
    report(pd.DataFrame(agreement(table)), HERE / "held.fit.csv")


if __name__ == "__main__":
    main()
