"""Studies made of the points of their curves."""

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import compare
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import RunCurve

RULES = {"pods": "max_variance", "grpo": "all", "grpo_ga": "all"}
STEPS_PER_SECOND = {"pods": 5, "grpo": 10}


def curve(points, series="pods 64→16", seed=0):
    """A run from (seconds, accuracy), with 5 steps a second for pods and 10 for grpo."""
    seconds, accuracy = (np.array(x, float) for x in zip(*points, strict=True))
    steps = seconds * STEPS_PER_SECOND.get(series.split()[0], 10)
    return RunCurve(f"{series} {seed}", series, seed, seconds, steps, accuracy)


def study(arms, *, incomplete=(), seeds=None, **others):
    """A study from the points of each series' runs."""
    runs, rows = [], []
    for series, of_series in arms.items():
        arm, sizes = series.split(",")[0].split()
        n, m = map(int, sizes.split("→"))
        for place, points in enumerate(of_series):
            seed = seeds[series][place] if seeds else place
            one = curve(points, series, seed)
            where = {"series": series, "seed": seed, "run": one.run}
            runs.append({**where, "arm": arm, "rule": RULES.get(arm, arm), "n": n, "m": m,
                         "complete": one.run not in incomplete})  # fmt: skip
            points_of = zip(one.seconds, one.steps, one.accuracy, strict=True)
            rows += [{**where, "train_seconds": t, "step": s, "accuracy": a}
                     for t, s, a in points_of]  # fmt: skip
    empty = {"missing": [], "inconsistencies": []}
    return Study("made", pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(),
                 machines=["A CPU"], budget="10 s", order=[*arms], **empty | others)  # fmt: skip


def ramps(*ends):
    """Runs that rise from 0 in a straight line for 10 s."""
    return [[(0, 0.0), (10, end)] for end in ends]


def pairs_of(made, arms=()):
    """The series and baseline of each contrast."""
    contrasts = compare(made, arms, draws=10).contrasts
    return contrasts[["series", "baseline"]].drop_duplicates().to_numpy().tolist()
