"""The lines of `pods plan` about arms: what a step must learn, whether it does, and which wins."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from pods.analysis.cost.breakeven import Curves, Pair, pairs
from pods.analysis.cost.forecast import Cell, largest_n
from pods.analysis.cost.gain import DEPENDS, Gain
from pods.analysis.cost.model import CostModel, predict
from pods.analysis.cost.plan_words import time_text

ROW = ("dear", "cheap", "cost", "cost_stderr", "measured", "phase", "gain", "factor", "low", "high",
       "verdict")  # fmt: skip
DEAR = 2.0  # steps of m→m that the largest n is asked for


def about_arms(
    model: CostModel, curves_of: Curves, cells: Sequence[Cell], asked: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Every pair of arms as a row and as lines; and how far n can go.

    Args:
        model: of the runs.
        curves_of: gives the complete runs of a series.
        cells: (n, m).
        asked: by the user; otherwise pairs outside of what was measured are but rows.
    """
    rows, lines = [], []
    for pair in pairs(model, curves_of, cells):
        rows.append(_row(pair))
        if asked or not (pair.dear.outside or pair.cheap.outside):
            lines.append(_cost(pair))
            lines += [f"  {_gain(pair, pair.gain)}"] if pair.gain else []
    for m in dict.fromkeys(m for n, m in cells if m < n):
        n = largest_n(model, m)
        if np.isfinite(n):
            outside = predict(model, m, m).outside or predict(model, math.ceil(n), m).outside
            lines.append(f"m = {m}: a step costs {DEAR:g} steps of {m}→{m} at n = {n:.0f}"
                         + (" (outside of what was measured)" if outside else ""))  # fmt: skip
    return pd.DataFrame(rows, columns=list(ROW)), lines


def _row(pair: Pair) -> dict[str, object]:
    found, (cost, stderr) = pair.gain, pair.cost
    numbers = (found.ratio, found.factor, found.low, found.high) if found else (np.nan,) * 4
    measured = pair.dear.measured and pair.cheap.measured
    values = (pair.dear.name, pair.cheap.name, cost, stderr, measured, next(iter(pair.extra), ""),
              *numbers, found.verdict if found else f"not measured: {pair.why_not}")  # fmt: skip
    return dict(zip(ROW, values, strict=True))


def _cost(pair: Pair) -> str:
    """What a step costs in the other arm's, and in which phases the difference lies."""
    dear, cheap, (ratio, stderr) = pair.dear, pair.cheap, pair.cost
    error = f" ± {stderr:.2f}" if np.isfinite(stderr) else ""
    total = dear.mean - cheap.mean
    where = [f"{phase} {time_text(more, '+', total)}" for phase, more in pair.extra.items()
             if abs(more) > 0.05 * abs(total)]  # fmt: skip
    fitted = [arm.name + (", outside of what was measured" if arm.outside else "")
              for arm in (dear, cheap) if not arm.measured]  # fmt: skip
    note = f" (fitted, its phases apart: {'; '.join(fitted)})" if fitted else ""
    seconds = "; ".join([f"{time_text(dear.mean)} against {time_text(cheap.mean)}", *where])
    return (f"a {dear.name} step costs {ratio:.2f}{error} {cheap.name} steps ({seconds}){note}: "
            f"it must learn {ratio:.2f} x as much a step to break even"
            + (f"; not measured ({pair.why_not})" if pair.gain is None else ""))  # fmt: skip


def _gain(pair: Pair, found: Gain) -> str:
    """Whether it does."""
    low, high = found.targets[0], found.targets[-1]
    levels = f"accuracies from {low:.3f} to {high:.3f}" if high > low else f"accuracy {low:.3f}"
    return (f"it learns {found.ratio:.2f} x as much a step (median steps to {levels}, "
            f"{found.runs[0]} and {found.runs[1]} runs), so it is "
            f"{found.factor:.2f} x as fast, 95 % {_interval(found)}: "
            + _verdict(pair, found))  # fmt: skip


def _interval(found: Gain) -> str:
    """An end of 0 or inf is no factor: there, half of an arm's resampled runs reach too little."""
    low, high = (f"{end:.2f}" if 0 < end < np.inf else "" for end in (found.low, found.high))
    if low and high:
        return f"{low} to {high}"
    return f"over {low}" if low else f"under {high}" if high else "unknown"


def _verdict(pair: Pair, found: Gain) -> str:
    phase = next(iter(pair.extra), None)
    if found.verdict == "dear":
        despite = f", although its {phase} takes longer" if phase else ""
        return f"this machine favours {pair.dear.name} by {found.factor:.2f}{despite}"
    if found.verdict == "cheap":
        because = f", because of {phase}" if phase else ""
        return f"this machine favours {pair.cheap.name} by {1 / found.factor:.2f}{because}"
    ends = (f" wanted: {found.factors[0]:.2f} x as fast to {found.targets[0]:.3f}, "
            f"{found.factors[-1]:.2f} x to {found.targets[-1]:.3f}")  # fmt: skip
    return f"undecided, {found.verdict}" + (ends if found.verdict == DEPENDS else "")
