"""Adaptive n against every fixed n, from the runs of experiments/regimes.

    python experiments/adaptive/adaptive.py    reads ../regimes/regimes.runs.csv, writes adaptive.*

Differences of mean accuracy over the window, paired over seeds, with 95 % t intervals, in points.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pods.analysis.statistics import holm, t_test

HERE = Path(__file__).parent
RUNS = HERE.parent / "regimes" / "regimes.runs.csv"
ADAPTIVE = "adaptive 16-64→16"
FIXED = ("grpo 16→16", "pods 32→16", "pods 64→16")
STARTS, CLOCKS = ("p05", "p25", "p60", "p90"), ("cpu", "l40s", "h100x8")
TITLES = {"cpu": "one CPU core", "l40s": "one L40S", "h100x8": "8 × H100"}
ALL = "all four"


def difference(values: pd.DataFrame, arm: str, other: str) -> dict[str, object]:
    """Compare two arms over seeds; values have a row per seed and a column per arm."""
    test = t_test(100 * (values[arm] - values[other]).to_numpy(float))
    return {"arm": arm, "other": other, "seeds": len(values), "gain": test.estimate,
            "low": test.low, "high": test.high, "p": test.p}  # fmt: skip


def rows(runs: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield a row per machine, start (and the mean over the starts) and fixed arm."""
    runs = runs[runs.arm.isin([ADAPTIVE, *FIXED])]
    for clock in CLOCKS:
        here = runs[runs.clock == clock]
        table = here.pivot_table("mean_accuracy", ["start", "seed"], "arm")
        places = {start: table.loc[start] for start in STARTS}
        places[ALL] = table.groupby("seed").mean()
        for start, values in places.items():
            best = values[[*FIXED]].mean().idxmax()
            for other in FIXED:
                yield {"clock": clock, "start": start, "best_fixed": other == best} | difference(
                    values, ADAPTIVE, other
                )


def draw(runs: pd.DataFrame, path: Path) -> None:
    """Draw what each arm gains over GRPO, a panel for each machine."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.6), layout="constrained", sharey=True)
    for axis, clock in zip(axes, CLOCKS, strict=True):
        here = runs[runs.clock == clock]
        for shift, arm in enumerate((*FIXED[1:], ADAPTIVE)):
            gains = [
                difference(of_start.pivot(index="seed", columns="arm", values="mean_accuracy"),
                           arm, FIXED[0])
                for _, of_start in here.groupby("start")
            ]  # fmt: skip
            places = [place + 0.18 * (shift - 1) for place in range(len(gains))]
            middle = [float(str(one["gain"])) for one in gains]
            ends = [[float(str(one[end])) for one in gains] for end in ("low", "high")]
            errors = [[m - low for m, low in zip(middle, ends[0], strict=True)],
                      [high - m for m, high in zip(middle, ends[1], strict=True)]]  # fmt: skip
            axis.errorbar(places, middle, errors, fmt="o", capsize=3, label=arm)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(f"prices of {TITLES[clock]}")
        axis.set_xticks(range(len(STARTS)), [f"{int(start[1:])} %" for start in STARTS])
        axis.set_xlabel("right at the start")
    axes[0].set_ylabel("mean accuracy − GRPO's, points")
    axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Write adaptive.csv and adaptive.png, and print the table."""
    runs = pd.read_csv(RUNS)
    table = pd.DataFrame(rows(runs))
    table["holm"] = holm(table.p.to_numpy(float))
    table.to_csv(HERE / "adaptive.csv", index=False, float_format="%.5g")
    print(table.drop(columns=["arm", "p"]).round(3).to_string(index=False))
    draw(runs, HERE / "adaptive.png")


if __name__ == "__main__":
    main()
