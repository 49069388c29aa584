"""A comparison in sentences that claim no more than it shows.

An arm is called higher only where Holm's p is at most 0.05. An interval with 0 in it settles
nothing: the words then say what the runs could have found, and never that arms are the same.
"""

from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.comparison.caveats import caveats
from pods.analysis.comparison.compare import Comparison
from pods.analysis.comparison.speed_words import speed_words
from pods.analysis.outcomes import OUTCOMES
from pods.analysis.power import MOST_RUNS
from pods.analysis.statistics import ALPHA, NEGLIGIBLE
from pods.analysis.tables import at

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
    start, end = (at(x) for x in (comparison.window.start, comparison.window.end))
    holm = f" Holm: adjusted over the {family} contrasts of an outcome." if family > 1 else ""
    return (f"Primary outcome: mean accuracy from {start} to {end} of training clock. Secondary: "
            f"final accuracy, at {end}.{holm}")  # fmt: skip


def _opposite(first: Record, last: Record) -> bool:
    """Whether the second outcome is settled, and for the other arm than the first one's."""
    return bool(first.estimate * last.estimate < 0 and last.p_holm <= ALPHA)


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
        return _untested(row, f"{higher} than {behind} in {outcome}", family)
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


def _untested(row: Record, seen: str, family: int) -> str:
    """What was seen where no t test can be made, and why none can."""
    runs = f"{row.n} against {row.baseline_n} runs"
    if np.isnan(row.stderr):
        return (f"{seen} ({runs}); an arm of one run allows no interval and no test, so nothing is "
                "settled.")  # fmt: skip
    if abs(row.estimate) <= NEGLIGIBLE:
        seen = f"{row.series} and {row.baseline} show no difference in {OUTCOMES[row.outcome]}"
    how = _design(row) if row.design == "paired" else runs
    return f"{seen} ({how}; {_p(row, family)}): not settled, no spread between runs to judge by."


def _design(row: Record) -> str:
    """How the runs were set against each other."""
    if row.design == "unpaired":
        return f"Welch, {row.n} and {row.baseline_n} runs, not paired"
    ahead = row.higher if row.estimate >= 0 else row.lower
    return f"paired over {row.n} seeds, higher in {ahead:.0f}"


def _p(row: Record, family: int) -> str:
    """Those p values that there are, after Holm where there is more than one contrast."""
    kind = "sign-flip" if row.design == "paired" else "permutation"
    how = f"{row.exact_drawn:,.0f} random {kind}s" if row.exact_drawn else f"exact {kind} test"
    parts = []
    for test, p, adjusted in (("", row.p, row.p_holm), (f"{how} ", row.exact_p, row.exact_p_holm)):
        after = f" (Holm {probability(adjusted)})" if family > 1 else ""
        parts += [f"{test}{probability(p)}{after}"] if np.isfinite(p) else []
    return "; ".join(parts)


def _power(row: Record) -> str:
    """What so many runs can find, and how many it would take."""
    paired = row.design == "paired"
    now = f"{row.n} pairs" if paired else f"{row.n} and {row.baseline_n} runs"
    return (f"{now} find a true difference of {points(row.detectable)} with 80 % power, and if "
            f"difference and spread are truly those seen, 80 % takes {needed(row.runs_needed)} "
            f"{'pairs' if paired else 'runs an arm'}.")  # fmt: skip


def question_words(row: Record) -> str:
    """The difference over questions, which is another uncertainty than that over seeds."""
    interval = f"95 % interval {points(row.low, '+', '')} to {points(row.high, '+')}"
    if np.isnan(row.low):
        interval = "no interval, since no question differs from the others"
    return (f"Over the {row.questions} questions of the last evaluation, given these runs, "
            f"{row.series} − {row.baseline} is {points(row.estimate, '+')} ({interval}; better on "
            f"{row.better}, worse on {row.worse}, the same on {row.equal}): the uncertainty is "
            "over questions, not over seeds.")  # fmt: skip


def points(difference: float, sign: str = "", unit: str = " points") -> str:
    """A difference of accuracies, in percentage points."""
    return f"{100 * difference:{sign}.2f}{unit}"


def probability(p: float) -> str:
    """P to two digits."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def needed(runs: float) -> str:
    """Number of runs, or that it is past the limit."""
    return f"{runs:,.0f}" if np.isfinite(runs) else f"more than {MOST_RUNS:,}"
