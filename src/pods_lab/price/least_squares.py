"""Ordinary least squares that returns NaN for whatever the rows do not identify.

Shapes: S = rows, K = terms of a fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.types import Floats

SINGULAR = 1e-9  # share of the largest singular value below which one is rounding
UNIDENTIFIED = 1e-6  # share of a weighted sum of coefficients that may lie outside the rows' span


@dataclass(frozen=True)
class Fit:
    """A least-squares fit, in terms divided by `scale` so that it is well conditioned."""

    terms: tuple[str, ...]  # (K,) column names; `fixed` stands for the constant 1
    scale: Floats  # (K,) largest absolute value of each term
    solution: Floats  # (K,) coefficients of least norm, correct wherever `span` identifies them
    covariance: Floats  # (K, K) of the solution; NaN without residual degrees of freedom
    span: Floats  # (K, K) projector onto the span of the rows
    residual_sd: float  # standard deviation; NaN without residual degrees of freedom
    r2: float  # explained share of the variance; NaN where the column does not vary
    rows: int  # number of rows used
    combinations: int  # number of distinct combinations of the terms
    rank: int  # number of coefficients, or sums of them, that the rows identify

    def at(self, point: Mapping[str, float]) -> tuple[float, float]:
        """Return value and standard error of a sum of the coefficients, weighted by `point`.

        Absent terms weigh 0: {"m": 1} asks for a coefficient, {"fixed": 1, "n": 64, "m": 16} for
        the predicted mean there. Both are NaN where the rows do not identify the sum, the error
        also without residual degrees of freedom.
        """
        weights = np.array([point.get(term, 0.0) for term in self.terms]) / self.scale
        outside = np.linalg.norm(weights - self.span @ weights)
        if outside > UNIDENTIFIED * np.linalg.norm(weights):
            return float("nan"), float("nan")
        variance = weights @ self.covariance @ weights
        return float(weights @ self.solution), float(np.sqrt(np.maximum(variance, 0.0)))


def fit(table: pd.DataFrame, column: str, terms: Sequence[str]) -> Fit:
    """Fit a column as a weighted sum of terms, without the rows that lack a number.

    A singular (S, K) design is no error: the pseudo-inverse shows what it leaves open.
    """
    present = table.assign(fixed=1.0).dropna(subset=[column, *terms])
    design = present[list(terms)].to_numpy(float)
    values = present[column].to_numpy(float)
    scale = np.abs(design).max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    scaled = design / scale

    inverse = np.linalg.pinv(scaled, rcond=SINGULAR)
    solution = inverse @ values
    span = inverse @ scaled
    rank = round(float(np.trace(span)))

    squares = float(np.sum((values - scaled @ solution) ** 2))
    spare = len(values) - rank
    variance = squares / spare if spare else float("nan")
    spread = float(np.sum((values - values.mean()) ** 2)) if len(values) else 0.0
    return Fit(
        terms=tuple(terms),
        scale=scale,
        solution=solution,
        covariance=variance * inverse @ inverse.T,
        span=span,
        residual_sd=float(np.sqrt(variance)),
        r2=1 - squares / spread if spread > 0 else float("nan"),
        rows=len(values),
        combinations=len(np.unique(design, axis=0)),
        rank=rank,
    )
