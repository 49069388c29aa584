"""The speed-up as the PODS authors compute it.

Shapes: S = runs, G = times of the grid.
"""

from collections.abc import Sequence

import numpy as np

from pods.analysis.compare.speedup import PEAK_SHARE
from pods.analysis.numbers.outcomes import RunCurve
from pods.analysis.numbers.statistics import Floats


def nearest(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """Return (S, G): each run's evaluation that is nearest to each time; the earlier of two."""
    return np.stack([c.accuracy[np.abs(c.seconds - grid[:, None]).argmin(1)] for c in curves])


def authors_rule(
    arm: Sequence[RunCurve], baseline: Sequence[RunCurve], grid: Floats
) -> dict[str, float]:
    """Compute the speed-up as the PODS authors do (arXiv:2504.13818).

    The time of an arm is the first one of the grid at which its mean over runs, each by its nearest
    evaluation, is at 99 % of the baseline's best or above; nothing is interpolated. Source: their
    scripts/plot.py:247-295 and scripts/plot-a100s.py:85-198 at 187f43b. There is no interval, since
    a grid time belongs to no run.
    """
    means = [nearest(runs, grid).mean(0) for runs in (arm, baseline)]
    target = PEAK_SHARE * means[1].max()
    times = [grid[curve >= target][0] if (curve >= target).any() else np.inf for curve in means]
    return {
        "target": float(target),
        "seconds": float(times[0]),
        "baseline_seconds": float(times[1]),
        "ratio": float(times[1] / times[0]),
    }
