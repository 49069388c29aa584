"""A comparison in sentences that claim no more than it shows.

An arm is called higher only where Holm's p is at most 0.05. An interval with 0 in it settles
nothing: the words then say what the runs could have found, and never that arms are the same.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.caveats import caveats
from pods.analysis.comparison.compare import Comparison
from pods.analysis.outcomes import OUTCOMES
from pods.analysis.power import MOST_RUNS
from pods.analysis.statistics import ALPHA

Record = Any  # a row of a table, by attribute


def paragraphs(comparison: Comparison) -> str:
    """What is compared, a paragraph for each contrast, and one of caveats."""
    family = int(comparison.contrasts.groupby("outcome").p.count().max())
    parts = [_head(comparison, family)]
    for _, tests in comparison.contrasts.groupby(["series", "baseline"], sort=False):
        first, last = (_row(tests, outcome) for outcome in OUTCOMES)
        sentences = [
            _verdict(first, family),
            *(["The final accuracy points the other way."] if _opposite(first, last) else []),
            _verdict(last, family),
            *speed_words(_of(comparison.speedups, first)),
            *(question_words(row) for row in _of(comparison.questions, first)),
        ]
        parts.append(" ".join(sentences))
    return "\n\n".join([*parts, *filter(None, [" ".join(caveats(comparison))])])


def _head(comparison: Comparison, family: int) -> str:
    """The outcomes, and how p values are adjusted."""
    start, end = (seconds(x) for x in (comparison.window.start, comparison.window.end))
    holm = f" Holm: adjusted over the {family} contrasts of an outcome." if family > 1 else ""
    return (f"Primary outcome: mean accuracy from {start} to {end} of training clock. Secondary: "
            f"final accuracy, at {end}.{holm}")  # fmt: skip


def _opposite(first: Record, last: Record) -> bool:
    return bool(first.estimate * last.estimate < 0)


def _row(tests: pd.DataFrame, outcome: str) -> Record:
    return next(tests[tests.outcome == outcome].itertuples())


def _of(table: pd.DataFrame, contrast: Record) -> list[Record]:
    """The rows of a table that are of this contrast."""
    if not len(table):
        return []
    wanted = (table.series == contrast.series) & (table.baseline == contrast.baseline)
    return list(table[wanted].itertuples())


def _verdict(row: Record, family: int) -> str:
    """What one test settles, with its interval; or what it could have."""
    ahead, behind, outcome = row.series, row.baseline, OUTCOMES[row.outcome]
    if row.estimate < 0:
        ahead, behind = behind, ahead
    higher = f"{ahead} is {points(abs(row.estimate))} higher"
    if np.isnan(row.p):
        return (
            f"{higher} than {behind} in {outcome} ({row.n} against {row.baseline_n} "
            "runs); an arm of one run allows no interval and no test, so nothing is settled."
        )
    low, high = sorted(np.sign(row.estimate or 1.0) * np.array([row.low, row.high]))
    evidence = (f"95 % t interval {points(low, unit='')} to {points(high)}, {_design(row)}; "
                f"{_p(row, family)}")  # fmt: skip
    if row.p > ALPHA:
        return (f"No difference in {outcome} was settled between {row.series} and "
                f"{row.baseline}: {higher} ({evidence}). That does not show that there is none: "
                f"{_power(row)}")  # fmt: skip
    if row.p_holm > ALPHA:
        return (f"{higher} than {behind} in {outcome} ({evidence}): a hint, not settled "
                f"after Holm over {family} contrasts. {_power(row)}")  # fmt: skip
    doubt = ""
    if row.exact_p_holm > ALPHA and row.exact_smallest * family <= ALPHA:
        doubt = " The exact test, which assumes no normal curve, does not confirm it."
    return f"{higher} than {behind} in {outcome} ({evidence}).{doubt}"


def _design(row: Record) -> str:
    """How the runs were set against each other."""
    if row.design == "unpaired":
        return f"Welch, {row.n} and {row.baseline_n} runs, not paired"
    ahead = row.higher if row.estimate >= 0 else row.lower
    return f"paired over {row.n} seeds, higher in {ahead:.0f}"


def _p(row: Record, family: int) -> str:
    """Both p values, after Holm where there is more than one contrast."""
    kind = "sign-flip" if row.design == "paired" else "permutation"
    how = f"{row.exact_drawn:,.0f} random {kind}s" if row.exact_drawn else f"exact {kind} test"
    parts = []
    for test, p, adjusted in (("", row.p, row.p_holm), (f"{how} ", row.exact_p, row.exact_p_holm)):
        after = f" (Holm {probability(adjusted)})" if family > 1 else ""
        parts.append(f"{test}{probability(p)}{after}")
    return "; ".join(parts)


def _power(row: Record) -> str:
    """What so many runs can find, and how many it would take."""
    paired = row.design == "paired"
    now = f"{row.n} pairs" if paired else f"{row.n} and {row.baseline_n} runs"
    return (f"{now} find a true difference of {points(row.detectable)} with 80 % power, and if "
            f"difference and spread are truly those seen, 80 % takes {needed(row.runs_needed)} "
            f"{'pairs' if paired else 'runs an arm'}.")  # fmt: skip


def speed_words(rows: list[Record]) -> Iterator[str]:
    """To 99 % of the baseline's peak, as the authors say that, and to the highest fixed target."""
    finite = [row for row in rows if 0 < row.ratio < np.inf]
    fixed = [row for row in finite if row.kind == "fixed"]
    for row in (row for row in rows if row.kind == "peak"):
        yield _to_target(row, f" (99 % of {row.baseline}'s peak)")
    for row in finite:
        if row.kind.startswith("authors"):
            yield (f"By the PODS authors' rule (first time on the {row.kind.partition(', ')[2]} "
                   f"with the mean curve there) it is {row.ratio:.2f} times.")  # fmt: skip
    for row in fixed[-1:]:
        yield _to_target(row, "")


def _to_target(row: Record, what: str) -> str:
    times = ", ".join(
        f"{name} {_median_time(median)} ({reached} of {n} runs reach it)"
        for name, median, reached, n in (
            (row.series, row.seconds, row.reached, row.n),
            (row.baseline, row.baseline_seconds, row.baseline_reached, row.baseline_n),
        )
    )
    return f"To {100 * row.target:.4g} %{what}: {times}; {_ratio_words(row)}"


def _median_time(median: float) -> str:
    return f"median {seconds(median)}" if np.isfinite(median) else "not in half of its runs"


def _ratio_words(row: Record) -> str:
    """The ratio, its interval, and whether that settles which is faster."""
    if np.isnan(row.ratio):
        return "no ratio can be said."
    if np.isinf(row.ratio) or row.ratio == 0:
        said = (
            f"{row.series} is {'more' if row.ratio else 'less'} than {row.bound:.2f} times as fast"
        )
    else:
        steps = f", {row.steps_ratio:.2f} times in steps" if row.steps_ratio < np.inf else ""
        said = f"{row.series} is {row.ratio:.2f} times as fast{steps}"
    if np.isnan(row.low):
        return f"{said}, from an arm of one run, so without an interval."
    if row.low == row.high:
        return f"{said}, as in 95 % of the resamples of whole runs."
    ends = [f"{end:.2f}" if 0 < end < np.inf else f"{end:g}" for end in (row.low, row.high)]
    missed = "; 0 or inf where half of an arm's runs miss" if {"0", "inf"} & {*ends} else ""
    said += f" (95 % interval {' to '.join(ends)}, whole runs resampled{missed})"
    return said + (": which is faster is not settled." if row.low <= 1 <= row.high else ".")


def question_words(row: Record) -> str:
    """The difference over questions, which is another uncertainty than that over seeds."""
    return (f"Over the {row.questions} questions of the last evaluation, given these runs, "
            f"{row.series} − {row.baseline} is {points(row.estimate, '+')} (95 % interval "
            f"{points(row.low, '+', '')} to {points(row.high, '+')}; better on {row.better}, worse "
            f"on {row.worse}, the same on {row.equal}): the uncertainty is over questions, not "
            "over seeds.")  # fmt: skip


def points(difference: float, sign: str = "", unit: str = " points") -> str:
    """A difference of accuracies, in percentage points."""
    return f"{100 * difference:{sign}.2f}{unit}"


def probability(p: float) -> str:
    """P to two digits."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def needed(runs: float) -> str:
    """Number of runs, or that it is past the limit."""
    return f"{runs:,.0f}" if np.isfinite(runs) else f"more than {MOST_RUNS:,}"


def seconds(value: float) -> str:
    """A time with its unit."""
    return f"{value:,.0f} s" if value >= 1000 else f"{value:.3g} s"
