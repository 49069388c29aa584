"""Predict, before the runs, which arm is ahead at which price of a rollout that is trained on.

    python -m experiments.prices.predict STUDY OUT

Reads the pilot of `pods advise` in runs/STUDY, and writes the table OUT: by the law of n and m at
the success rates of the pilot, the progress of a step of an arm over that of its baseline, what it
costs at each price r of a trained rollout over a generated one (nothing is fixed), the ratio of
both, and the sign that follows for the lead in the mean accuracy. A random m of n makes the
progress of GRPO m→m, at the cost of n rollouts.
"""

import sys
from pathlib import Path

import pandas as pd

from pods.runs.store import RunStore, run_folders
from pods_lab.advise.advice import Pilot, read_pilot
from pods_lab.advise.progress import MEASURED, expected_progress

PRICES = (0.7, 2.1, 4.0)
EVEN = 0.05  # a gain that differs less from 1 has no sign
CONTRASTS = [
    ("grpo 8→8", "grpo 16→16"),
    ("pods 16→8", "grpo 16→16"),
    ("pods 16→8", "grpo 8→8"),
    ("pods 64→16", "grpo 16→16"),
    ("pods 64→16", "random 64→16"),
    ("pods 64→16", "grpo_ga 64→64"),
]


def sizes(arm: str) -> tuple[int, int]:
    """Return n and m of an arm."""
    n, m = arm.split()[1].split("→")
    return int(n), int(m)


def progress_over(arm: str, over: str, pilot: Pilot) -> float:
    """Return the progress of a step of an arm over that of its baseline."""
    learned = []
    for name in (arm, over):
        n, m = sizes(name)
        learned.append((m, m) if name.startswith("random") else (n, m))
    of_arm, of_over = expected_progress(learned, pilot.posteriors, MEASURED, pilot.groups)
    return float(of_arm / of_over)


def sign(gain: float) -> str:
    """Say which arm a gain at equal cost puts ahead."""
    if abs(gain - 1) < EVEN:
        return "even"
    return "ahead" if gain > 1 else "behind"


def predictions(folder: Path) -> pd.DataFrame:
    """Return a row per contrast and price, from the pilot in this study."""
    pilot = read_pilot([RunStore(run) for run in run_folders(folder)])
    rows = []
    for arm, over in CONTRASTS:
        progress = progress_over(arm, over, pilot)
        n, m = sizes(arm)
        over_n, over_m = sizes(over)
        for price in PRICES:
            cost = (n + price * m) / (over_n + price * over_m)
            gain = progress / cost
            rows.append(
                {
                    "arm": arm,
                    "over": over,
                    "r": price,
                    "progress": progress,
                    "cost": cost,
                    "gain": gain,
                    "expected": sign(gain),
                }
            )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    study, out = sys.argv[1:]
    table = predictions(Path("runs") / study)
    table.to_csv(out, index=False, float_format="%.4g")
    print(table.round(3).to_string(index=False))
