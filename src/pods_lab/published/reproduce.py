"""The numbers of a figure of the PODS paper, from the authors' logs and from runs of one's own.

Shapes: S = runs of an arm, G = times of the grid.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from pods.analysis.compare.compare import compare
from pods.analysis.compare.speedup import PEAK_SHARE
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.study import MEASURED, Study
from pods.analysis.numbers.outcomes import RunCurve, amount, run_curves
from pods.analysis.numbers.statistics import mean_and_stderr
from pods.analysis.numbers.tables import run_table
from pods.types import Floats
from pods_lab.published.fetch import COMMIT
from pods_lab.published.paper_figures import PaperFigure


@dataclass(frozen=True)
class Reproduction:
    """One figure, from one set of runs."""

    study: Study  # the runs of the figure's arms, in its metric and window
    series: dict[str, str]  # by an arm's name in the paper that of its curve in the study
    curves: dict[str, list[RunCurve]]  # likewise its complete runs
    grid: Floats  # (G,) times after 0 at which the curves are drawn


def published(figure: PaperFigure, study: Study) -> Reproduction:
    """Take a figure's arms from the authors' logs; only those at `COMMIT` are no ValueError."""
    made = _reproduction(figure, study, figure.metric, study.until)
    if digest(made.study) != figure.digest:
        where = f"the authors' repository at {COMMIT[:7]}"
        raise ValueError(f"{figure.name}: these logs are not those of {where}")
    return made


def from_own_runs(figure: PaperFigure, study: Study) -> Reproduction:
    """Take a figure's arms from runs of one's own, over all of their training time.

    Their verdict is the authors' lenient one if the runs have it, as in the paper.
    `ValueError`: the study lacks an arm, or its time is modelled.
    """
    if study.clock != MEASURED:
        raise ValueError(f"study={study.name}: must be measured as theirs, it is {study.clock}")
    rows = study.evaluations
    metric = figure.metric
    if metric == "accuracy" and "lenient" in rows and rows.lenient.notna().all():
        metric = "lenient"

    runs = study.runs[study.runs.complete]
    wanted = set(figure.arms.values())
    is_shown = [arm in wanted for arm in zip(runs.rule, runs.n, runs.m, strict=True)]
    ends = rows[rows.run.isin(runs.run[is_shown])].groupby("run").train_seconds.max()
    return _reproduction(figure, study, metric, float(ends.min()))


def _reproduction(figure: PaperFigure, study: Study, metric: str, seconds: float) -> Reproduction:
    """Take a figure's arms from a study, in a metric and up to a time; an arm must be there."""
    runs = study.runs
    series = {}
    for label, arm in figure.arms.items():
        is_arm = (runs.rule == arm.rule) & (runs.n == arm.n) & (runs.m == arm.m)
        names = runs.series[is_arm & runs.complete].unique()
        if len(names) != 1:
            raise ValueError(
                f"{figure.name}: study {study.name} must have one curve of rule={arm.rule} "
                f"n={arm.n} m={arm.m} ({label}); it has {' | '.join(runs.series.unique())}"
            )
        series[label] = str(names[0])

    shown = apply_filter(study, StudyFilter(tuple(series.values()), metric, seconds))
    curves = {label: run_curves(shown, name) for label, name in series.items()}
    grid = np.arange(1.0, figure.times + 1) * (seconds / figure.times)
    return Reproduction(shown, series, curves, grid)


def digest(study: Study) -> str:
    """Return the start of the SHA-256 of a study's evaluations, whichever files they came from."""
    columns = ["run", "step", "train_seconds", "accuracy", "length"]
    rows = study.evaluations[columns].sort_values(["run", "train_seconds", "step"])
    text = rows.to_csv(index=False, lineterminator="\n")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def irregular(study: Study) -> list[str]:
    """Return the lines about the irregular runs of the study's arms."""
    names = set(study.runs.run[~study.runs.complete])
    lines = []
    for line in study.missing:
        file = line.partition(":")[0]
        if file.removesuffix(".json") in names:
            lines.append(line)
    return lines


def nearest(curves: Sequence[RunCurve], grid: Floats) -> Floats:
    """Return (S, G): each run's evaluation that is nearest to each time; the earlier of two."""
    rows = []
    for curve in curves:
        distances = np.abs(curve.seconds - grid[:, None])
        rows.append(curve.accuracy[distances.argmin(axis=1)])
    return np.stack(rows)


class SpeedUp(NamedTuple):
    """How many times sooner the second arm of a figure is at an accuracy than the first."""

    target: float
    """99 % of the best accuracy of the first arm, the baseline."""
    seconds: float
    baseline_seconds: float

    @property
    def ratio(self) -> float:
        """The seconds of the baseline over the arm's."""
        return self.baseline_seconds / self.seconds


def speed_up(made: Reproduction) -> SpeedUp:
    """Compute the second arm's speed-up over the first as the PODS authors do (arXiv:2504.13818).

    The time of an arm is the first one of the grid at which its mean over runs, each by its nearest
    evaluation, is at 99 % of the baseline's best or above; nothing is interpolated. Source: their
    scripts/plot.py:247-295 and scripts/plot-a100s.py:85-198 at 187f43b. There is no interval, since
    a grid time belongs to no run.
    """
    baseline, arm = list(made.curves.values())[:2]
    baseline_mean = nearest(baseline, made.grid).mean(axis=0)
    arm_mean = nearest(arm, made.grid).mean(axis=0)
    target = float(PEAK_SHARE * baseline_mean.max())
    return SpeedUp(
        target=target,
        seconds=_time_to(target, arm_mean, made.grid),
        baseline_seconds=_time_to(target, baseline_mean, made.grid),
    )


def _time_to(target: float, mean: Floats, grid: Floats) -> float:
    """Return the first time (G,) at which a mean (G,) is at a target; infinite: it is never."""
    times = grid[mean >= target]
    return float(times[0]) if len(times) else np.inf


def lines(figure: PaperFigure, made: Reproduction, source: str) -> list[str]:
    """Say what the runs give: a table of the arms, and beside the paper's number the speed-ups."""
    runs = run_table(made.study).set_index("series")
    end = amount(float(made.grid[-1]))
    rows = []
    for label, name in made.series.items():
        rows.append({
            "arm": label,
            "curve": name,
            "runs": len(made.curves[label]),
            "s/step": f"{runs.seconds_per_step[name].mean():.2f}",
            f"% at {end}": _percent(nearest(made.curves[label], made.grid)[:, -1]),
            "% mean until then": _percent(runs.mean_accuracy[[name]].to_numpy(float)),
        })  # fmt: skip
    table = pd.DataFrame(rows).to_string(index=False)
    text = [f"{source}, mean ± standard error over runs:", table]
    if figure.ratio is not None:
        text += _speed_up_lines(figure.ratio, made, source)
    return text


def _speed_up_lines(paper: float, made: Reproduction, source: str) -> list[str]:
    """Say the paper's speed-up, that of the runs by the authors' rule, and that by ours."""
    base, arm = made.series
    baseline_series, arm_series = made.series.values()
    row = speed_up(made)
    comparison = compare(made.study, [arm_series, baseline_series])
    peak = comparison.speedups[comparison.speedups.kind == "peak"].iloc[0]
    mean = comparison.contrasts[comparison.contrasts.outcome == "mean_accuracy"].iloc[0]
    times = f"{base} {amount(row.baseline_seconds)}, {arm} {amount(row.seconds)}"
    return [
        f"{arm} is at 99 % of {base}'s best (times as fast):",
        f"  the paper {paper:.2f}",
        f"  {source}, by the authors' rule {row.ratio:.2f} ({times}; {100 * row.target:.2f} %)",
        f"  {source}, medians of interpolated runs {peak.ratio:.2f} [{peak.low:.2f}, "
        f"{peak.high:.2f}], 95 % over resampled runs",
        f"  {source}, mean over the time: {100 * mean.estimate:+.2f} points "
        f"[{100 * mean.low:.2f}, {100 * mean.high:.2f}]",
    ]


def _percent(values: Floats) -> str:
    """Show the mean and standard error of one arm's runs."""
    mean, stderr = mean_and_stderr(100 * values[:, None])
    return f"{mean[0]:.2f} ± {stderr[0]:.2f}"
