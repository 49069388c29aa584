"""What needs saying of others' runs: what is told apart, best checkpoints, small test sets.

Shapes: K = checkpoints of a run.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from pods.analysis.compare.compare import Comparison
from pods.analysis.compare.text import shown_difference, verdicts
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import all_curves
from pods.analysis.numbers.statistics import ALPHA, is_told_apart
from pods.types import Floats

POWER = 0.8
MOST_SEEDS = 1000
LEAST_PAIRS = 6  # with fewer a t test rests on the distribution of the scores
LEAST_RUNS = 4  # of each method, if they are not paired
LEAST_CHECKPOINTS = 5  # the best one, and four around it


def decisions(comparison: Comparison) -> Iterator[str]:
    """Say of each contrast and outcome if it is told apart, by which test, and what it takes."""
    rows = comparison.contrasts.itertuples()
    tests = comparison.contrasts.groupby("outcome").p.transform("count")
    for row, count, verdict in zip(rows, tests, verdicts(comparison), strict=True):
        yield _decision(row, count, verdict, comparison)


def _decision(row: Any, tests: int, verdict: str, comparison: Comparison) -> str:
    """Say of a contrast, which is one of so many tests, whether it is told apart."""
    paired = row.design == "paired"
    runs = f"{row.runs} pairs" if paired else f"{row.runs} and {row.baseline_runs} runs"
    if np.isnan(row.p) or np.isnan(row.low):
        return f"Not told apart ({runs}). {verdict}"
    test = f"{'paired' if paired else 'Welch'} t test, {runs}"
    if is_told_apart(row.p_holm):
        return f"Told apart ({test}). {verdict}"

    fewest = min(row.runs, row.baseline_runs)
    seeds = seeds_needed(row.estimate, row.stderr * fewest**0.5, tests, paired)
    more_seeds = _more_seeds(seeds, row, comparison)
    return (
        f"Not told apart ({test}). {verdict} {more_seeds} would show a difference of this size "
        "four times in five."
    )


def _more_seeds(seeds: int, row: Any, comparison: Comparison) -> str:
    """Say how many runs both methods lack of so many seeds; runs without a partner are there."""
    if seeds > MOST_SEEDS:
        return f"More than {MOST_SEEDS:,} more seeds of each"
    runs = comparison.arms.set_index("series").runs
    lacking = {name: seeds - int(runs[name]) for name in (row.series, row.baseline)}
    if max(lacking.values()) <= 0:
        return "Runs of the seeds that only one of them has"
    if lacking[row.series] == lacking[row.baseline]:
        return f"About {lacking[row.series]} more seeds of each"
    named = [f"{count} more seeds of {name}" for name, count in lacking.items() if count > 0]
    return f"About {' and '.join(named)}"


def seeds_needed(difference: float, sd: float, tests: int = 1, paired: bool = True) -> int:
    """Return the seeds per method with which a t test finds a true difference with 80 % power.

    `sd` is that of one pair's difference. Of two samples it is the square root of the sum of their
    variances. With several tests alpha is divided by their number.

    >>> [seeds_needed(difference, 1.0) for difference in (2.0, 1.0, 0.5)]
    [6, 10, 34]
    """
    alpha = ALPHA / tests
    least = LEAST_PAIRS if paired else LEAST_RUNS
    for seeds in range(2, MOST_SEEDS + 1):
        df = seeds - 1 if paired else 2 * (seeds - 1)
        reach = special.stdtrit(df, 1 - alpha / 2) + special.stdtrit(df, POWER)
        if abs(difference) * seeds**0.5 >= reach * sd:
            return max(seeds, least)
    return MOST_SEEDS + 1


def best_checkpoints(study: Study) -> pd.DataFrame:
    """Compare the best checkpoint of each run with its last, averaged over the runs of a method.

    Returns:
        series, runs, checkpoints (median), above (the last one), noise (standard deviation of a
        score around its neighbours), by_noise (of the best above the line through its neighbours).
        Runs of fewer than five checkpoints are left out.
    """
    rows = []
    for series in study.evaluations.series.unique():
        scores = [curve.accuracy for curve in all_curves(study, str(series))]
        scores = [score for score in scores if len(score) >= LEAST_CHECKPOINTS]
        if not scores:
            continue
        luck = [_luck(score) for score in scores]
        rows.append({
            "series": str(series),
            "runs": len(scores),
            "checkpoints": np.median([len(score) for score in scores]),
            "above": np.mean([score.max() - score[-1] for score in scores]),
            "noise": np.mean([run.noise for run in luck]),
            "by_noise": np.mean([run.by_noise for run in luck]),
        })  # fmt: skip
    names = ["series", "runs", "checkpoints", "above", "noise", "by_noise"]
    return pd.DataFrame(rows, columns=names)


class _Luck(NamedTuple):
    """How uncertain the scores of a run are."""

    noise: float
    """Standard deviation of a score around its neighbours."""
    by_noise: float
    """By how much the best is above the line through its neighbours."""


def _luck(scores: Floats) -> _Luck:
    """Measure the noise of (K,) scores, and by how much the best is above what is around it.

    The noise is of second differences, which a smooth curve hardly has: their variance is 6 times
    that of independent noise. Around the best is the line through its four nearest neighbours.
    """
    best = int(scores.argmax())
    first = min(max(best - 2, 0), len(scores) - 5)
    neighbours = [place for place in range(first, first + 5) if place != best]
    line = np.polyfit(neighbours, scores[neighbours], 1)
    variance = (np.diff(scores, 2) ** 2).mean() / 6
    by_noise = scores[best] - np.polyval(line, best)
    return _Luck(noise=float(np.sqrt(variance)), by_noise=float(by_noise))


def remarks(study: Study, best: pd.DataFrame) -> Iterator[str]:
    """Say how much is noise of the test set, and of best checkpoints of up to four methods."""
    last = study.evaluations.groupby("run", observed=True).last()
    questions = last.questions.iloc[0]
    if questions > 0 and study.share:
        repeats = last.repeats.iloc[0]
        share = last.accuracy.mean()
        variance = share * (1 - share)
        same_questions = 100 * (variance / (questions * repeats)) ** 0.5
        new_questions = 100 * (variance / questions) ** 0.5
        yield (
            f"The test set has {questions:,.0f} questions, answered {repeats} times: at "
            f"{100 * share:.1f} % a score has a binomial standard error of {same_questions:.1f} "
            f"points, as a statement about new questions of up to {new_questions:.1f}, which no "
            "number of seeds lowers."
        )

    row: Any
    for row in best.head(4).itertuples():
        above = shown_difference(row.above, study)
        noise = shown_difference(row.noise, study)
        luck = ""
        if row.by_noise > 0:
            by_noise = shown_difference(row.by_noise, study)
            luck = f", and {by_noise} above its neighbours, which is luck"
        yield (
            f"{row.series}: the best of {row.checkpoints:.0f} checkpoints is on average {above} "
            f"above the last{luck} (noise of a score: {noise})."
        )
