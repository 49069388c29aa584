"""What needs saying of others' runs: what is settled, best checkpoints, small test sets.

Shapes: K = checkpoints of a run.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from pods.analysis.compare.compare import Comparison
from pods.analysis.compare.text import shown_difference, verdicts
from pods.analysis.loading.study import Study
from pods.analysis.numbers.outcomes import all_curves
from pods.analysis.numbers.statistics import ALPHA, Floats, is_settled

POWER, MOST_SEEDS = 0.8, 1000
LEAST = 6, 4  # pairs, or runs of each


def decisions(comparison: Comparison) -> Iterator[str]:
    """Say of each contrast and outcome whether it is settled, by which test, and what it takes."""
    family = comparison.contrasts.groupby("outcome").p.transform("count")
    said = zip(comparison.contrasts.itertuples(), family, verdicts(comparison), strict=True)
    row: Any
    for row, tests, verdict in said:
        paired = row.design == "paired"
        runs = f"{row.runs} pairs" if paired else f"{row.runs} and {row.baseline_runs} runs"
        test = f"{'paired' if paired else 'Welch'} t test, {runs}"
        fewest = min(row.runs, row.baseline_runs)
        if np.isnan(row.p) or np.isnan(row.low):
            yield f"Not settled ({runs}). {verdict}"
        elif is_settled(row.p_holm):
            yield f"Settled ({test}). {verdict}"
        else:
            seeds = seeds_needed(row.estimate, row.stderr * fewest**0.5, tests, paired)
            more = _more_seeds(seeds, row, comparison)
            yield (
                f"Not settled ({test}). {verdict} {more} would settle a difference of this size "
                "four times in five."
            )


def _more_seeds(seeds: int, row: Any, comparison: Comparison) -> str:
    """Say how many runs both methods lack of so many seeds; runs without a partner are there."""
    if seeds > MOST_SEEDS:
        return f"More than {MOST_SEEDS:,} more seeds of each"
    there = dict(zip(comparison.arms.series, comparison.arms.runs, strict=True))
    lacking = {name: seeds - there[name] for name in (row.series, row.baseline)}
    if max(lacking.values()) <= 0:
        return "Runs of the seeds that only one of them has"
    if len({*lacking.values()}) == 1:
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
    for n in range(2, MOST_SEEDS + 1):
        df = (n - 1) * (2 - paired)
        reach = special.stdtrit(df, 1 - ALPHA / 2 / tests) + special.stdtrit(df, POWER)
        if abs(difference) * n**0.5 >= reach * sd:
            return max(n, LEAST[not paired])
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
        scores = [score for score in scores if len(score) >= 5]
        if scores:
            means = np.mean([(score.max() - score[-1], *_luck(score)) for score in scores], 0)
            rows.append((str(series), len(scores), np.median([*map(len, scores)]), *means))
    names = ["series", "runs", "checkpoints", "above", "noise", "by_noise"]
    return pd.DataFrame(rows, columns=names)


def _luck(scores: Floats) -> tuple[float, float]:
    """Return the noise of (K,) scores, and by how much the best is above what is around it.

    The noise is of second differences, which a smooth curve hardly has: their variance is 6 times
    that of independent noise. Around the best is the line through its four nearest neighbours.
    """
    best = int(scores.argmax())
    first = min(max(best - 2, 0), len(scores) - 5)
    near = [index for index in range(first, first + 5) if index != best]
    line = np.polyfit(near, scores[near], 1)
    sd = float(np.sqrt((np.diff(scores, 2) ** 2).mean() / 6))
    return sd, float(scores[best] - np.polyval(line, best))


def remarks(study: Study, best: pd.DataFrame) -> Iterator[str]:
    """Say how much is noise of the test set, and of best checkpoints of up to four methods."""
    last = study.evaluations.groupby("run", observed=True).last()
    questions, repeats, p = last.questions.iloc[0], last.repeats.iloc[0], last.accuracy.mean()
    if questions > 0 and study.share:
        these, new = (100 * (p * (1 - p) / n) ** 0.5 for n in (questions * repeats, questions))
        yield (
            f"The test set has {questions:,.0f} questions, answered {repeats} times: at "
            f"{100 * p:.1f} % a score has a binomial standard error of {these:.1f} points, as a "
            f"statement about new questions of up to {new:.1f}, which no number of seeds lowers."
        )
    row: Any
    for row in best.head(4).itertuples():
        above = shown_difference(row.above, study)
        noise = shown_difference(row.noise, study)
        said = f"{row.series}: the best of {row.checkpoints:.0f} checkpoints is on average {above} "
        said += "above the last"
        if row.by_noise > 0:
            luck = shown_difference(row.by_noise, study)
            said += f", and {luck} above its neighbours, which is luck"
        yield f"{said} (noise of a score: {noise})."
