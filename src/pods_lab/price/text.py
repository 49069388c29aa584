"""The lines that `pods price` prints of a fit: its formula, its tables, and what to mind."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from pods_lab.price.model import CostModel, coefficient, why_not_identifiable

OUTSIDE = "outside the measured range"


def fit_lines(
    name: str, model: CostModel, fits: pd.DataFrame, misfits: pd.DataFrame
) -> Iterator[str]:
    """Describe a setting: its line, how well it fits, its phases, the residuals."""
    runs = model.runs
    line = model.total
    sizes = runs[["n", "m"]].drop_duplicates()
    prompts = ", ".join(map(str, sorted(runs.prompts.unique())))
    yield f"{name}: {len(runs)} runs, {len(sizes)} (n, m), prompts per step: {prompts}"
    reason = why_not_identifiable(model)
    yield reason or f"seconds per step = {_formula(model)}  (± standard error)"
    if not reason:
        largest = misfits.percent.abs().max()
        yield (
            f"R² {line.r2:z.4f}, residual sd {line.residual_sd:.3g} s, "
            f"largest residual {largest:.1f} %"
        )
    elif np.isfinite(coefficient(model, "generated")[0] + coefficient(model, "kept")[0]):
        yield f"summed over the phases: seconds per step = {_formula(model)}"
    if model.phases:
        yield _table(fits.loc[fits.what != "step", ["what", "fixed", "generated", "kept", "r2"]])
    yield _table(misfits.drop(columns=["prompts", "residual"]))
    if not reason and line.combinations == line.rank:
        yield f"- as many (n, m) as coefficients ({len(line.terms)}), so linearity is unchecked"
    uneven = runs[~runs.index.isin(model.steady.index)]
    if len(uneven):
        yield (
            f"- {', '.join(uneven.arm.unique())}: prompts are resampled or skipped, so steps "
            "differ in cost; not fitted, only among the residuals; `pods compare` times these arms"
        )


def _formula(model: CostModel) -> str:
    """Write fixed + b n + c m, or per rollout where runs differ in prompts per step."""
    factor = 1
    unit = " x prompts"
    if model.steady.prompts.nunique() == 1:
        factor = model.prompts
        unit = ""

    value, stderr = coefficient(model, "fixed")
    parts = [_with_error(value, stderr)]
    for term, letter in (("generated", "n"), ("kept", "m")):
        value, stderr = coefficient(model, term)
        parts.append(f"{_with_error(factor * value, factor * stderr)}{unit} {letter}")
    return " + ".join(parts)


def _with_error(value: float, stderr: float) -> str:
    """Round to two digits of the error.

    >>> _with_error(4.4142, 0.2445), _with_error(0.0584, float("nan"))
    ('(4.41 ± 0.24)', '0.0584')
    """
    if not stderr > 0:
        return f"{value:.3g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    return f"({value:.{digits}f} ± {stderr:.{digits}f})"


def prediction_table(rows: pd.DataFrame) -> str:
    """Show the predicted steps and runs, and which of them extrapolate."""
    notes = rows.outside.map({True: OUTSIDE, False: ""})
    notes = notes.where(rows.source == "total", "sum of the phases")
    notes = notes.where(rows.seconds.notna(), "not identifiable")
    shown = rows.drop(columns=["source", "outside"])
    shown[""] = notes
    return _table(shown)


def _table(rows: pd.DataFrame) -> str:
    """Write three digits of each number, above a nanosecond."""
    digits = "{:z.3g}".format
    return rows.round(9).to_string(index=False, na_rep="-", float_format=digits)
