"""Speed-ups in sentences: how much sooner, in how many runs, and whether that settles anything."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pods.analysis.tables import at

Record = Any  # a row of a table, by attribute


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
    return f"median {at(median)}" if np.isfinite(median) else "not in half of its runs"


def _ratio_words(row: Record) -> str:
    """The ratio, its interval, and whether that settles which is faster."""
    if np.isnan(row.ratio):
        return "no ratio can be said."
    missed = np.isinf(row.ratio) or row.ratio == 0
    if missed:
        said = (
            f"{row.series} is {'more' if row.ratio else 'less'} than {row.bound:.2f} times as fast"
        )
    else:
        steps = f", {row.steps_ratio:.2f} times in steps" if row.steps_ratio < np.inf else ""
        said = f"{row.series} is {row.ratio:.2f} times as fast{steps}"
    if np.isnan(row.low):
        return f"{said}, from an arm of one run, so without an interval."
    if row.low == row.high:
        why = ("half of those runs miss it in 95 % of the resamples of whole runs too" if missed
               else "no interval, since runs do not differ there")  # fmt: skip
        return f"{said}; {why}."
    ends = [f"{end:.2f}" if 0 < end < np.inf else f"{end:g}" for end in (row.low, row.high)]
    where = "; 0 or inf where half of an arm's runs miss" if {"0", "inf"} & {*ends} else ""
    said += f" (95 % interval {' to '.join(ends)}, whole runs resampled{where})"
    return said + (": which is faster is not settled." if row.low <= 1 <= row.high else ".")
