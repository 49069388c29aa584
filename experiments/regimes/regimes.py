"""Where PODS pays: each arm against GRPO at the prices of three machines, from four start policies.

    python experiments/regimes/regimes.py [RUNS]     reads RUNS (default: runs), writes regimes*.csv
    python experiments/regimes/regimes.py --draw     draws regimes.png from regimes.csv

The steps of the fixed arms are timed by each machine's prices; the adaptive arm was trained under
them. All arms of a start and a machine are measured in one window, which ends where the first of
their records ends.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pods.analysis.comparison.speedup import speedups
from pods.analysis.outcomes import (
    RunCurve,
    Window,
    final_accuracy,
    mean_accuracy,
    run_curves,
    window,
)
from pods.analysis.resampling import resamples
from pods.analysis.statistics import holm, t_test
from pods.analysis.study import load
from pods.analysis.view import View, choose
from pods.config.clock_model import ClockModel, read_clock_model
from pods.method.adaptive import expected_progress
from pods.runs.store import run_folders

HERE = Path(__file__).parent
STARTS = ("p05", "p25", "p60", "p90")
CLOCKS = {"cpu": str(HERE / "cpu.json"), "l40s": "l40s", "h100x8": "h100x8"}
SIDES = {"cpu": "top", "l40s": "bottom", "h100x8": "bottom"}  # of their lines, for labels
TITLES = {"cpu": "one CPU core", "l40s": "one L40S", "h100x8": "8 × H100"}
GRPO, ADAPTIVE = "grpo 16→16", "adaptive 16-64→16"
OUTCOMES = ("mean_accuracy", "final_accuracy")
PROMPTS = 2  # per step
SHARE = 0.8  # of GRPO's way: to the accuracy that speed-ups are to
DRAWS, CONCENTRATION = 2000, 30.0  # of the Beta distribution of success rates along the line


def curves_of(folder: Path, clock: ClockModel | None) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm of a study, timed by the prices if any are given."""
    study = choose(load(folder, run_folders(folder)), View(clock=clock))
    return {name: run_curves(study, name) for name in study.runs.series.unique()}


def step_seconds(clock: ClockModel, n: int, m: int) -> float:
    """Return the seconds of a step with these sizes."""
    amounts = {"generated_rollouts": PROMPTS * n, "trained_rollouts": PROMPTS * m}
    return float(clock.seconds(amounts))


def most_of_the_way(grpo: Sequence[RunCurve], span: Window) -> float:
    """Return the accuracy that is SHARE of the way from GRPO's at the start to its at the end."""
    first = float(np.mean([curve.accuracy[0] for curve in grpo]))
    last = float(np.mean([final_accuracy(curve, span) for curve in grpo]))
    return first + SHARE * (last - first)


def noise_ratio(folder: Path) -> float:
    """Return what the first choice of an adaptive study's runs was made from, over its runs."""
    logs = [path.read_text().splitlines() for path in folder.glob("*/*/*/metrics.jsonl")]
    return float(np.mean([json.loads(lines[2])["adaptive/noise_ratio"] for lines in logs]))


def measured(runs: Path) -> Iterator[dict[str, object]]:
    """Yield a row per run: start, machine, arm, seed and outcomes; and the arm's speed-up."""
    for start in STARTS:
        for name, source in CLOCKS.items():
            arms = curves_of(runs / f"regimes_{start}", read_clock_model(source))
            adaptive = runs / f"adaptive_{start}_{name}"
            arms |= curves_of(adaptive, None)
            span = window(curve for curves in arms.values() for curve in curves)
            target = most_of_the_way(arms[GRPO], span)
            for arm, curves in arms.items():
                [drawn] = resamples([len(curves)], DRAWS, 0)
                timed = speedups(curves, arms[GRPO], [target], span, (drawn, drawn))[0]
                for curve in curves:
                    yield {
                        "start": start,
                        "clock": name,
                        "arm": arm,
                        "seed": curve.seed,
                        "seconds": span.end,
                        "start_accuracy": curve.accuracy[0],
                        "mean_accuracy": mean_accuracy(curve, span),
                        "final_accuracy": final_accuracy(curve, span),
                        "noise_ratio": noise_ratio(adaptive),
                        **{
                            f"speedup_{key}": timed[key]
                            for key in ("ratio", "low", "high", "bound")
                        },
                    }


def against_grpo(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per start, machine and arm, with what it gains over GRPO, paired over seeds."""
    rows = []
    for (start, clock), of_place in runs.groupby(["start", "clock"], sort=False):
        for arm, of_arm in of_place.groupby("arm", sort=False):
            row = {"start": start, "clock": clock, "arm": arm, "seeds": len(of_arm)}
            row |= of_arm.drop(columns=[*row, "seed"], errors="ignore").mean().to_dict()
            for key in OUTCOMES if arm != GRPO else ():
                row |= paired(of_place, key, str(arm), GRPO)
            rows.append(row)
    table = pd.DataFrame(rows)
    for key in OUTCOMES:  # the places of one arm are a family
        of_arm = table.groupby("arm")[f"{key}_p"]
        table[f"{key}_holm"] = of_arm.transform(lambda p: holm(p.to_numpy(float)))
    return table


def paired(runs: pd.DataFrame, outcome: str, arm: str, other: str) -> dict[str, float]:
    """Return the mean difference of two arms over seeds, its 95 % t interval and its p."""
    by_seed = runs.pivot(index="seed", columns="arm", values=outcome)
    test = t_test((by_seed[arm] - by_seed[other]).to_numpy(float))
    return {f"{outcome}_gain": test.estimate, f"{outcome}_low": test.low,
            f"{outcome}_high": test.high, f"{outcome}_p": test.p}  # fmt: skip


def measure(folder: Path) -> None:
    """Write regimes.runs.csv and regimes.csv."""
    runs = pd.DataFrame(measured(folder))
    runs.to_csv(HERE / "regimes.runs.csv", index=False, float_format="%.6g")
    table = against_grpo(runs)
    table.to_csv(HERE / "regimes.csv", index=False, float_format="%.6g")
    gains = [f"mean_accuracy{end}" for end in ("", "_gain", "_low", "_high", "_holm")]
    shown = table[["start", "clock", "arm", *gains, "final_accuracy_gain", "speedup_ratio"]]
    print(shown.round(4).to_string(index=False))


def break_even(table: pd.DataFrame, n: int, success: np.ndarray) -> np.ndarray:
    """Predict how many times GRPO's seconds a step may take before it no longer pays.

    The noise ratio at a success rate lies between those that were measured at the four starts.
    """
    known = (
        table.groupby("start")[["start_accuracy", "noise_ratio"]]
        .mean()
        .sort_values("start_accuracy")
    )
    ratios = np.interp(success, known.start_accuracy, np.log(known.noise_ratio))
    progress = []
    for p, ratio in zip(success, np.exp(ratios), strict=True):
        rates = CONCENTRATION * np.array([[p, 1 - p]])
        grpo, pods = expected_progress([(16, 16), (n, 16)], rates, float(ratio))
        progress.append(pods / grpo)
    return np.array(progress)


def draw() -> None:
    """Draw regimes.png: success rate against the price of a step, a panel for each n."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    table = pd.read_csv(HERE / "regimes.csv")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharex=True)
    grid = np.linspace(0.03, 0.985, 120)
    colours = {"PODS ahead": "#1b7837", "PODS behind": "#b2182b", "not settled": "#777777"}
    for axis, n in zip(axes, (32, 64), strict=True):
        axis.plot(grid, break_even(table, n, grid), color="black", lw=1.2)
        for name, source in CLOCKS.items():
            clock = read_clock_model(source)
            cost = step_seconds(clock, n, 16) / step_seconds(clock, 16, 16)
            axis.axhline(cost, color="#cccccc", lw=0.8, zorder=0)
            axis.annotate(TITLES[name], (0.005, cost), xycoords=("axes fraction", "data"),
                          fontsize=8, va=SIDES[name], color="#555555")  # fmt: skip
            here = table[table.clock == name].set_index(["start", "arm"])
            for start in STARTS:
                base, row = here.loc[(start, GRPO)], here.loc[(start, f"pods {n}→16")]
                settled = "not settled" if row.mean_accuracy_holm > 0.05 else (
                    "PODS ahead" if row.mean_accuracy_gain > 0 else "PODS behind"
                )  # fmt: skip
                ends = [base.start_accuracy, base.final_accuracy]
                axis.plot(ends, [cost, cost], color=colours[settled], lw=1.5, alpha=0.6)
                axis.plot(base.mean_accuracy, cost, "o", color=colours[settled], ms=7)
                axis.annotate(
                    label(row),
                    (base.mean_accuracy, cost),
                    xytext=(0, 6 if SIDES[name] == "bottom" else -6),
                    textcoords="offset points",
                    ha="center",
                    va=SIDES[name],
                    fontsize=8,
                )
        axis.set_title(f"PODS {n}→16 against GRPO 16→16")
        axis.set_xlabel("share of rollouts that are right (start to end of the window, GRPO)")
        axis.set_ylim(0.95, 1.06 * axis.get_ylim()[1])
    axes[0].set_ylabel("seconds of a step, in those of GRPO's step")
    marks = [Line2D([], [], color="black", label="predicted break-even: PODS pays below")]
    marks += [Line2D([], [], color=colour, marker="o", label=name)
              for name, colour in colours.items()]  # fmt: skip
    figure.legend(handles=marks, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(HERE / "regimes.png", dpi=130)


def label(row: pd.Series) -> str:
    """Write a speed-up; where an arm did not reach the target, what is certain of it."""
    ratio = row.speedup_ratio
    if np.isfinite(ratio) and ratio > 0:
        return f"{ratio:.2f}×"
    return f"{'<' if ratio == 0 else '>'}{row.speedup_bound:.2f}×"


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        measure(Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
    draw()
