"""Does the probe predict training? Progress at a start policy against the gain of the first steps.

    python -m experiments.probe.predicts [RUNS]            writes predicts.csv and predicts.png
    python -m experiments.probe.predicts --fresh [RUNS]    the same for predicts.fresh.*
    python -m experiments.probe.predicts --draw            only draws

RUNS (default: runs) holds the studies of experiments/regimes, and what `pods probe "regimes_p05
pods 64→16 seed 0" --step 0` wrote for each of them. Both sides are relative to GRPO 16→16: the
probe's progress per step, and the accuracy gained over the first STEPS steps, paired over seeds.
The fresh start policies are checkpoints of another run, and nothing was chosen by them. `formula`
is what the adaptive arm and `pods advise` expect of max-variance at the start's success rate.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.advice.grid import expected
from experiments.curves import axes, curves_of
from scipy import stats

from pods.analysis.numbers.outcomes import accuracy_at

HERE = Path(__file__).parent
STARTS = {"predicts": ("p05", "p25", "p60", "p90"), "predicts.fresh": ("c38", "c67", "c85", "c94")}
STEPS, DRAWS = 50.0, 2000
CROWDED = 1.06  # points below this lie too close together for labels
GRPO = "grpo 16→16"
PAIRS = [(32, 16), (64, 16)]
MAX_VARIANCE = "max_variance, selected, std"
ARMS = {  # of the study: rule, n and m of the probe
    "pods 32→16": (MAX_VARIANCE, 32, 16),
    "pods 64→16": (MAX_VARIANCE, 64, 16),
    "random 64→16": ("random, selected, std", 64, 16),
    "reinforce_ada 64→16": ("balanced, full, none", 64, 16),
}


def rows(runs: Path, starts: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """Yield a row per start and arm."""
    for start in starts:
        folder = runs / f"regimes_{start}"
        [path] = (folder / "probed").glob("*-step-000000.csv")
        probed = pd.read_csv(path).set_index(["rule", "n", "m"]).progress
        base = probed["random, selected, std", 16, 16]
        curves, gained, begun = curves_of(folder, x="steps"), {}, []
        for arm in (GRPO, *ARMS):
            values = [accuracy_at(curve, np.array([0.0, STEPS])) for curve in curves[arm]]
            gained[arm] = np.array([last - first for first, last in values])
            begun += [first for first, _ in values]
        formula = dict(zip(PAIRS, expected(PAIRS, float(np.mean(begun))), strict=True))
        for arm, cell in ARMS.items():
            difference = gained[arm] - gained[GRPO]
            scale = gained[GRPO].mean()
            yield {
                "start": start, "arm": arm, "predicted": probed[cell] / base,
                "formula": formula[cell[1:]] if cell[0] == MAX_VARIANCE else np.nan,
                "measured": 1 + difference.mean() / scale,
                "stderr": difference.std(ddof=1) / np.sqrt(len(difference)) / scale,
                "grpo_gain": scale,
            }  # fmt: skip


def correlations(table: pd.DataFrame) -> Iterator[str]:
    """Write Pearson's and Spearman's correlation, with intervals over resampled start policies.

    The arms of one start share its probe and its GRPO runs, so they are drawn together.
    """
    rng = np.random.default_rng(0)
    starts = [of[["predicted", "measured"]].to_numpy() for _, of in table.groupby("start")]
    for name, of in (("Pearson", stats.pearsonr), ("Spearman", stats.spearmanr)):
        places = [rng.integers(len(starts), size=len(starts)) for _ in range(DRAWS)]
        drawn = [of(*np.concatenate([starts[i] for i in draw]).T)[0] for draw in places]
        low, high = np.nanpercentile(drawn, (2.5, 97.5))
        yield f"{name} {of(*np.concatenate(starts).T)[0]:.2f} [{low:.2f}, {high:.2f}]"


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw a colour per arm, the start policy beside each point."""
    with axes(path, 6, 4.6) as axis:
        for arm, of_arm in table.groupby("arm", sort=False):
            axis.errorbar(of_arm.predicted, of_arm.measured, of_arm.stderr, fmt="o", label=arm)
            for row in of_arm[of_arm.predicted > CROWDED].itertuples():
                axis.annotate(f"{int(str(row.start)[1:])} %", (row.predicted, row.measured),
                              xytext=(5, 4), textcoords="offset points", fontsize=8)  # fmt: skip
        ends = [0.9, float(table.predicted.max()) + 0.1]
        axis.plot(ends, ends, color="#999999", lw=0.8)
        axis.set_xlabel("probe: progress per step, in that of GRPO 16→16")
        axis.set_ylabel(f"accuracy gained in {STEPS:.0f} steps, in GRPO's gain (± stderr)")
        axis.set_title("; ".join(correlations(table)), fontsize=8)


def main() -> None:
    """Write the table unless only the drawing is asked for, and draw."""
    folders = [word for word in sys.argv[1:] if not word.startswith("--")]
    name = "predicts.fresh" if "--fresh" in sys.argv else "predicts"
    if "--draw" not in sys.argv:
        table = pd.DataFrame(rows(Path(*folders or ["runs"]), STARTS[name]))
        table.to_csv(HERE / f"{name}.csv", index=False, float_format="%.5g")
        print(table.round(3).to_string(index=False), *correlations(table), sep="\n")
        pods = table.dropna()
        found = pods[["predicted", "formula"]].corrwith(pods.measured)
        print("Pearson, the arms of max-variance:", found)
    draw(pd.read_csv(HERE / f"{name}.csv"), HERE / f"{name}.png")


if __name__ == "__main__":
    main()
