"""What each run of the law's parts gained: runs.csv, from which the tables of this folder are made.

    python -m experiments.law.measure [RUNS]     reads the studies RUNS/law_PART (default: runs)

All is counted in steps. A target is a share of the way of GRPO (n = m, lr 1e-4) of the same part,
start policy and prompts per step: from its mean accuracy at the start to that at its end.
"""

import sys
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.loading.run_reader import Run, open_run
from pods.analysis.numbers.outcomes import RunCurve, Window, crossings, mean_accuracy
from pods.runs.store import run_folders

HERE = Path(__file__).parent
SHARES = (50, 80, 95)  # percent of GRPO's way
LR = 1e-4  # of GRPO where a target is set
GROUP = ["part", "start", "prompts"]


def pass_at(k: int, right: list[int], answers: int) -> float:
    """Average over questions the chance that k of R answers, c of them right, hold a right one.

    It is 1 - C(R - c, k) / C(R, k), without bias (arXiv:2107.03374, eq. 1); `answers` is R.
    """
    return float(np.mean([1 - comb(answers - c, k) / comb(answers, k) for c in right]))


def measured(run: Run) -> dict[str, object]:
    """Return a run's settings and outcomes, and its curve."""
    config, repeats = run.config, run.config.evaluation.repeats
    steps = np.array(sorted(run.means), float)
    accuracy = np.array([run.means[step]["accuracy"] for step in steps])
    curve = RunCurve(run.store.folder.name, "", config.seed, steps, steps, accuracy)
    right = [round(share * repeats) for share in run.answers.values()]
    return {
        "part": run.store.folder.parents[2].name.removeprefix("law_"),
        "start": config.model.name, "start_accuracy": accuracy[0],
        "arm": f"{config.arm_name()} {config.nm.n}→{config.nm.m}",
        "prompts": config.prompts_per_step, "lr": config.update.lr, "seed": config.seed,
        "steps": int(steps[-1]), "mean_accuracy": mean_accuracy(curve, Window(0.0, steps[-1])),
        "final_accuracy": accuracy[-1],
        **{f"pass@{k}": pass_at(k, right, repeats) for k in (1, 2, 5) if k <= repeats},
        "grpo": config.nm.n == config.nm.m and config.update.lr == LR, "curve": curve,
    }  # fmt: skip


def with_targets(group: pd.DataFrame) -> pd.DataFrame:
    """Add the steps to each target of a group's GRPO; where a run does not reach it, nothing."""
    way = group[group.grpo][["start_accuracy", "final_accuracy"]].mean()
    span = Window(0.0, float(group.steps.min()))
    for share in SHARES:
        target = way.start_accuracy + share / 100 * (way.final_accuracy - way.start_accuracy)
        times, _ = crossings(list(group.curve), np.array([target]), span)
        group[f"target_{share}"] = target
        group[f"steps_to_{share}"] = np.where(np.isfinite(times[0]), times[0], np.nan)
    return group


def main() -> None:
    """Write runs.csv."""
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    opened = [open_run(f) for study in sorted(runs.glob("law_*")) for f in run_folders(study)]
    done = [run for run in opened if run.state == "done" and not run.incomplete]
    table = pd.DataFrame(map(measured, done))
    table = pd.concat([with_targets(group.copy()) for _, group in table.groupby(GROUP)])
    table["curve"] = [" ".join(f"{a:.4g}" for a in curve.accuracy) for curve in table.curve]
    table = table.drop(columns="grpo").sort_values([*GROUP, "lr", "arm", "seed"])
    table.to_csv(HERE / "runs.csv", index=False, float_format="%.6g")
    by = table.groupby([*GROUP, "lr", "arm"])[["mean_accuracy", "final_accuracy", "pass@5"]]
    print(by.agg(["mean", "sem", "count"]).round(4).to_string())
    print(f"{len(done)} of {len(opened)} runs: the others are not done")


if __name__ == "__main__":
    main()
