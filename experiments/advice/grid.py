"""What `pods advise` expects of a step against training, for pairs of n and m tried here alone.

    python -m experiments.advice.grid [RUNS]     reads RUNS/advice_grid and RUNS/advice_adaptive,
                                                 writes grid.csv and window.csv
    python -m experiments.advice.grid --again    expects and draws anew from grid.csv

RUNS is `runs` unless it is given. The window is the time that all runs have, at the prices that the
grid's runs were fitted to. A band is the way from one accuracy to a higher one. What a pair is
worth there is the number of steps that GRPO 16→16 takes over its own, on the mean curves of its
runs, with a 95 % interval over resampled seeds. It is expected from the law alone, in the middle of
the band.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast, with_holm
from experiments.curves import axes, curves_of, in_one_window

from pods.analysis.numbers.outcomes import final_accuracy, mean_accuracy
from pods.method.progress import MEASURED, expected_progress

HERE = Path(__file__).parent
BASE, GRPO = (16, 16), "all 16→16"
BANDS = ((0.30, 0.55), (0.55, 0.80), (0.80, 0.94))
DRAWS, CONCENTRATION = 2000, 30.0  # of the Beta distribution of success rates, as in ../regimes
PROMPTS = 2  # of a step


def steps_between(accuracy: np.ndarray, steps: np.ndarray, band: tuple[float, float]) -> float:
    """Return the steps that a mean curve takes from one accuracy to another; NaN: not reached."""
    highest = np.maximum.accumulate(accuracy)
    if highest[-1] < band[1]:
        return float("nan")
    first, last = np.interp(band, highest, steps)
    return float(last - first)


def expected(pairs: list[tuple[int, int]], success: float) -> np.ndarray:
    """Return the progress of a step of each pair over that of BASE, at a success rate."""
    rates = CONCENTRATION * np.array([[success, 1 - success]])
    progress = expected_progress([BASE, *pairs], rates, MEASURED, PROMPTS)
    return progress[1:] / progress[0]


def rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield a row per band and pair."""
    curves = {
        tuple(map(int, arm.split()[-1].split("→"))): of
        for arm, of in curves_of(folder, x="steps").items()
    }
    steps = curves[BASE][0].seconds
    accuracy = {pair: np.array([c.accuracy for c in of]) for pair, of in curves.items()}
    pairs = sorted((pair for pair in curves if pair != BASE), key=lambda pair: (-pair[1], pair[0]))
    rng = np.random.default_rng(0)
    seeds = len(accuracy[BASE])
    drawn = rng.integers(seeds, size=(DRAWS, seeds))
    for band in BANDS:
        base, *others = (
            [steps_between(accuracy[pair].mean(0), steps, band)]
            + [steps_between(accuracy[pair][seed].mean(0), steps, band) for seed in drawn]
            for pair in (BASE, *pairs)
        )
        gains = expected(pairs, sum(band) / 2)
        for (n, m), taken, gain in zip(pairs, others, gains, strict=True):
            ratios = np.array(base) / np.array(taken)
            low, high = np.nanpercentile(ratios[1:], (2.5, 97.5))
            yield {"low_accuracy": band[0], "high_accuracy": band[1], "n": n, "m": m,
                   "seeds": seeds, "expected": gain, "measured": ratios[0], "low": low,
                   "high": high}  # fmt: skip


def in_window(runs: Path) -> pd.DataFrame:
    """Return each arm's outcomes in the window, and what it is above the BASE."""
    adaptive = runs / "advice_adaptive"
    arms, span = in_one_window(runs / "advice_grid", HERE / "prices.json", adaptive)
    rows = []
    for outcome in (mean_accuracy, final_accuracy):
        values = {
            arm: np.array([outcome(curve, span) for curve in curves])
            for arm, curves in arms.items()
        }
        for arm, of in values.items():
            stderr = of.std(ddof=1) / np.sqrt(len(of))
            row = {"outcome": outcome.__name__, "arm": arm, "seconds": span.end,
                   "value": of.mean(), "value_stderr": stderr}  # fmt: skip
            if arm != GRPO:
                row |= {f"gain_{k}": v for k, v in contrast(of - values[GRPO]).items()}
            rows.append(row)
    return with_holm(pd.DataFrame(rows), "outcome", "gain_")


def draw(table: pd.DataFrame) -> None:
    """Draw grid.png: expected against measured, a colour per band."""
    with axes(HERE / "grid.png", 6, 4.6) as axis:
        for (first, last), of in table.groupby(["low_accuracy", "high_accuracy"]):
            errors = [of.measured - of.low, of.high - of.measured]
            label = f"from {100 * first:.0f} to {100 * last:.0f} % right"
            axis.errorbar(of.expected, of.measured, errors, fmt="o", capsize=2, label=label)
        for row in table[table.low_accuracy == table.low_accuracy.max()].itertuples():
            axis.annotate(f"{row.n}→{row.m}", (row.expected, row.measured), xytext=(6, -3),
                          textcoords="offset points", fontsize=8)  # fmt: skip
        ends = [0.8, float(table.expected.max()) + 0.1]
        axis.plot(ends, ends, color="#999999", lw=0.8)
        axis.set_xlabel("expected progress of a step, in that of GRPO 16→16")
        axis.set_ylabel("measured (95 % interval)")


def main() -> None:
    """Write the tables, or what is expected anew, and draw."""
    if "--again" in sys.argv:
        table = pd.read_csv(HERE / "grid.csv")
        bands = table.groupby(["low_accuracy", "high_accuracy"], sort=False)
        table["expected"] = np.concatenate(
            [expected([*zip(of.n, of.m, strict=True)], sum(band) / 2) for band, of in bands]
        )
        table.to_csv(HERE / "grid.csv", index=False, float_format="%.5g")
    else:
        runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
        table = pd.DataFrame(rows(runs / "advice_grid"))
        table.to_csv(HERE / "grid.csv", index=False, float_format="%.5g")
        print(table.round(3).to_string(index=False))
        table = in_window(runs)
        table.to_csv(HERE / "window.csv", index=False, float_format="%.5g")
        print(table.round(3).to_string(index=False))
    draw(pd.read_csv(HERE / "grid.csv"))


if __name__ == "__main__":
    main()
