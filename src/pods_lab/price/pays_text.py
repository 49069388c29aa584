"""Say where an arm pays: at which prices its lead over the baseline changes its sign."""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pods.analysis.compare.text import Record, interval_text, shown_difference
from pods.analysis.loading.study import Study
from pods.types import Floats

Bools = NDArray[np.bool_]


def sign_changes(places: Floats, values: Floats) -> list[float]:
    """Return where a line through (K,) points crosses 0, places on a logarithmic scale."""
    logs = np.log(places)
    found = []
    for i in range(len(values) - 1):
        before, after = values[i], values[i + 1]
        if before == 0:
            found.append(float(places[i]))
        elif before * after < 0:
            share = before / (before - after)
            found.append(float(np.exp(logs[i] + share * (logs[i + 1] - logs[i]))))
    return found


def sentences(table: pd.DataFrame) -> Iterator[str]:
    """Say of each arm at which prices of a trained rollout it is ahead of the baseline."""
    rows = table[table.by == "ratio"]
    for (series, baseline), points in rows.groupby(["series", "baseline"], sort=False):
        yield sentence(str(series), str(baseline), points)


def sentence(series: str, baseline: str, points: pd.DataFrame) -> str:
    """Say where one arm's lead changes its sign, over the rows of rising `ratio`.

    The 95 % interval of that place holds the ratios at which the interval of the lead has a 0.
    """
    ratios = points.ratio.to_numpy()
    lead = points.estimate.to_numpy()
    where = sign_changes(ratios, lead)
    lowest = f"{ratios[0]:.3g}"
    highest = f"{ratios[-1]:.3g}"
    if len(where) > 1:
        places = ", ".join(f"{place:.2f}" for place in where)
        return f"The lead of {series} over {baseline} changes its sign at r = {places}."

    if not where:
        side = "ahead of" if lead[0] > 0 else "behind"
        apart = points.low > 0 if lead[0] > 0 else points.high < 0
        text = f"{series} is {side} {baseline} at every r from {lowest} to {highest}"
        if apart.all():
            return f"{text} (95 %, each r by itself)."
        if not apart.any():
            return f"{text}, but at none does the 95 % interval exclude 0."
        return f"{text} (95 % for r from {_ranges(ratios, apart.to_numpy())})."

    [place] = where
    more = "more" if lead[-1] > 0 else "less"
    return (
        f"{series} is ahead of {baseline} if a rollout trained on costs {more} than {place:.2f} "
        f"generated ones (95 %: {_interval(ratios, points, lowest, highest)})."
    )


def _interval(ratios: Floats, points: pd.DataFrame, lowest: str, highest: str) -> str:
    """Return the interval of the only place at which a lead changes its sign, as text."""
    if points.low.isna().any():
        return "unknown, with so few runs"
    ends = sorted(
        sign_changes(ratios, points.low.to_numpy()) + sign_changes(ratios, points.high.to_numpy())
    )
    is_open = (points.low <= 0) & (points.high >= 0)
    start = f"from below {lowest}" if is_open.iloc[0] else f"from {ends[0]:.2f}"
    end = f"to above {highest}" if is_open.iloc[-1] else f"to {ends[-1]:.2f}"
    return f"{start} {end}"


def _ranges(ratios: Floats, holds: Bools) -> str:
    """Return the ranges of ratios at which something holds, as text."""
    texts = []
    for is_true, group in itertools.groupby(zip(holds, ratios, strict=True), key=lambda x: x[0]):
        if is_true:
            places = [ratio for _, ratio in group]
            texts.append(f"{places[0]:.2f} to {places[-1]:.2f}")
    return " and ".join(texts)


def card_sentences(table: pd.DataFrame, study: Study) -> Iterator[str]:
    """Say the lead of each arm at the prices of each card."""
    row: Record
    for row in table[table.by == "card"].itertuples():
        points = shown_difference(abs(row.estimate), study)
        side = "above" if row.estimate > 0 else "below"
        certainty = f"95 %: {interval_text(row.estimate, row.low, row.high, study)}"
        if np.isnan(row.low):
            certainty = "no interval, with so few runs"
        yield f"{row.card}: {row.series} is {points} {side} {row.baseline} ({certainty})."
