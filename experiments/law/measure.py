"""What the runs of parts b and c gained, beside what predictions.csv expected of them.

    python -m experiments.law.measure [RUNS]     reads the studies RUNS/law_PART (default: runs)
    python -m experiments.law.measure --again    reads runs.csv

Writes runs.csv (a row per run) and held.csv (a row per arm and quantity). A ratio is that of the
steps in which the mean curves of GRPO and of an arm go half of GRPO's way, from its start to its
end, with 95 % over resampled seeds; 0: the arm does not arrive.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import report
from experiments.law.predictions import GRPO, HALF, SIGN

from pods.analysis.loading.run_reader import Run, open_run
from pods.runs.store import run_folders

HERE = Path(__file__).parent
DRAWS, PARTS = 2000, ["part", "start", "prompts"]


def measured(run: Run) -> dict[str, object]:
    """Return a run's settings, pass@k at its end, and its curve."""
    config, steps = run.config, sorted(run.means)
    accuracy = [run.means[step]["accuracy"] for step in steps]
    return {
        "part": run.store.folder.parents[2].name.removeprefix("law_"),
        "start": config.model.name, "prompts": config.prompts_per_step,
        "arm": f"{config.arm_name()} {config.nm.n}→{config.nm.m}", "seed": config.seed,
        **{f"pass@{k}": run.means[steps[-1]][f"pass@{k}"] for k in (1, 2, 5)},
        "steps": " ".join(map(str, steps)), "accuracy": " ".join(f"{a:.5g}" for a in accuracy),
    }  # fmt: skip


def steps_of_half(grpo: np.ndarray, arm: np.ndarray, steps: np.ndarray) -> float:
    """Return GRPO's steps over the arm's for half of GRPO's way, of curves (seeds, points)."""
    base, other = (np.maximum.accumulate(curves.mean(0)) for curves in (grpo, arm))
    target = (base[0] + base[-1]) / 2
    if other[-1] < target:
        return 0.0
    taken = [float(np.interp(target, curve, steps)) for curve in (base, other)]
    return taken[0] / max(taken[1], 1e-9)


def held(runs: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield what was measured of each arm against GRPO, and of pass@5 against a random choice."""
    for (part, start, prompts), group in runs.groupby(PARTS, sort=False):
        of = f"{start} B={prompts}" if part == "b" else str(start)
        paired = group[group.groupby("seed").arm.transform("nunique") == group.arm.nunique()]
        arms = {str(arm): each for arm, each in paired.sort_values("seed").groupby("arm")}
        steps = np.array(group.steps.iloc[0].split(), float)
        curves = {arm: np.array([row.split() for row in each.accuracy], float)
                  for arm, each in arms.items()}  # fmt: skip
        drawn = np.random.default_rng(0).integers(
            len(curves[GRPO]), size=(DRAWS, len(curves[GRPO]))
        )
        for arm in sorted({*arms} - {GRPO}):
            ratios = [steps_of_half(curves[GRPO][i], curves[arm][i], steps) for i in drawn]
            low, high = np.quantile(ratios, (0.025, 0.975))
            row = {"part": part, "arm": f"{of} {arm}", "seeds": len(curves[arm])}
            ratio = steps_of_half(curves[GRPO], curves[arm], steps)
            yield row | {"quantity": HALF, "measured": ratio, "low": low, "high": high}
            if part == "c" and arm != "random 64→16":
                ahead = arms[arm]["pass@5"].to_numpy() - arms["random 64→16"]["pass@5"].to_numpy()
                test = contrast(100 * ahead)
                yield row | {"quantity": SIGN, "measured": test["estimate"], "low": test["low"],
                             "high": test["high"]}  # fmt: skip


def main() -> None:
    """Write the tables."""
    path = HERE / "runs.csv"
    if "--again" not in sys.argv:
        runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
        opened = [open_run(each) for of in sorted(runs.glob("law_*")) for each in run_folders(of)]
        made = pd.DataFrame(measured(run) for run in opened if run.state == "done")
        made.sort_values([*PARTS, "arm", "seed"]).to_csv(path, index=False, float_format="%.6g")
    found = pd.DataFrame(held(pd.read_csv(path)))
    expected = pd.read_csv(HERE / "predictions.csv").query("part != 'a'")
    wide = expected.pivot(
        index=["arm", "quantity"], columns="formula", values=["expected", "low", "high"]
    )
    wide.columns = pd.Index([f"{formula} {end}" for end, formula in wide.columns])
    report(found.merge(wide.reset_index(), on=["arm", "quantity"], how="left"), HERE / "held.csv")


if __name__ == "__main__":
    main()
