"""Published laws for n in the terms of their own claims, from the curves of the study.

    python -m experiments.laws.court     reads accuracy_vs_time.runs.csv and compare.csv

Writes claims.csv, how much less of what a paper counts an arm needs for 80 % of the way that its
baseline goes, with 95 % over resampled seeds; dash_wall.csv, how far DASH is ahead of GRPO if its
modelled seconds are stretched to those of the wall; and laws.png.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.contrasts import contrast
from experiments.curves import axes, report

from pods.analysis.compare.speedup import speedups
from pods.analysis.numbers.outcomes import RunCurve, mean_accuracy, window
from pods.analysis.numbers.statistics import resamples

HERE = Path(__file__).parent
PRICES = json.loads((HERE.parent / "regimes" / "cpu.json").read_text())
GRPO = "grpo 16→16"
DASH = "dash 16→16"
DASH_WALL_SECONDS = 50.0  # of its runs of 24 modelled seconds, and of GRPO's
GRPO_WALL_SECONDS = 43.0
SHARE = 0.8
DRAWS = 2000
CLAIMS = [  # law, arm, against, what is saved, and how many times less the paper says
    ("2-GRPO", "two 2→2", GRPO, "rollouts", "8"),
    ("2-GRPO at its rate", "two_fast 2→2", GRPO, "rollouts", "8"),
    ("sGPO", "inverse 8→8", "grpo 8→8", "rollouts", "3"),
    ("VIP", "variance 16→16", "equal 16→16", "rollouts", "above 1"),
    ("SPEED", "screened 24→24", GRPO, "seconds", "2 to 6"),
    ("DASH", "dash 16→16", GRPO, "seconds", "6"),
    ("PODS", "pods 64→16", "grpo 64→64", "seconds", "1.7 to 3"),
]


def curves(rows: pd.DataFrame, arm: str, counted_in: str) -> list[RunCurve]:
    """Return the curves of an arm over seconds, or over rollouts in the place of seconds."""
    price, found = PRICES["per_rollout"] + PRICES["per_kept"], []
    for seed, of in rows[rows.series.str.partition(",")[0] == arm].groupby("seed"):
        seconds, steps, accuracy = of[["train_seconds", "step", "accuracy"]].to_numpy(float).T
        if counted_in == "rollouts":
            seconds = (seconds - PRICES["base"] * steps) / price
        found.append(RunCurve("", arm, int(str(seed)), seconds, steps, accuracy))
    return found


def claims(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield what each law says that it saves, and what it saved."""
    for law, arm, against, saved, claimed in CLAIMS:
        of, baseline = (curves(rows, name, saved) for name in (arm, against))
        first, last = (np.mean([curve.accuracy[i] for curve in baseline]) for i in (0, -1))
        [drawn] = resamples([len(of)], DRAWS, 0)
        targets, span = [first + SHARE * (last - first)], window([*of, *baseline])
        timed = speedups(of, baseline, targets, span, (drawn, drawn))[0]
        yield {"law": law, "arm": arm, "against": against, "saved": saved, "claimed": claimed,
               **{key: timed[key] for key in ("ratio", "low", "high", "bound")}}  # fmt: skip


def dash_by_the_wall(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how far DASH is ahead of GRPO in the mean over its own wall time, paired by seed.

    The prices count the fixed time of a step once for DASH's eight updates.
    """
    stretch = DASH_WALL_SECONDS / GRPO_WALL_SECONDS
    dash = [replace(run, seconds=stretch * run.seconds) for run in curves(rows, DASH, "seconds")]
    grpo = curves(rows, GRPO, "seconds")
    span = window([*dash, *grpo])
    dash_means = np.array([mean_accuracy(run, span) for run in dash])
    grpo_means = np.array([mean_accuracy(run, span) for run in grpo])
    return pd.DataFrame([{"arm": DASH, "over": GRPO} | contrast(dash_means - grpo_means)])


if __name__ == "__main__":
    table = pd.read_csv(HERE / "accuracy_vs_time.runs.csv")
    report(pd.DataFrame(claims(table)), HERE / "claims.csv")
    report(dash_by_the_wall(table), HERE / "dash_wall.csv")
    gains = pd.read_csv(HERE / "compare.csv").query("outcome == 'mean_accuracy'")
    errors = 100 * np.array([gains.estimate - gains.low, gains.high - gains.estimate])
    with axes(HERE / "laws.png", 6.5, 4) as axis:
        names = gains.series.str.partition(",")[0]
        axis.errorbar(100 * gains.estimate, names, xerr=errors, fmt="o", label="95 %, five seeds")
        axis.set(xlim=(-15, 10), xlabel="points of mean accuracy above GRPO 16→16, in equal time")
        axis.axvline(0, color="black", lw=0.8)
