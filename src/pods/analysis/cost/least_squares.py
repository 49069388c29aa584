"""Ordinary least squares that says what it cannot tell, instead of failing or making it up.

Shapes: S = rows, K = terms of a fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods.analysis.statistics import Floats

SINGULAR = 1e-9  # of the largest singular value: below is rounding
UNTOLD = 1e-6  # share of a weighted sum of coefficients that lies outside of what the rows span


@dataclass(frozen=True)
class Fit:
    """A least-squares fit; its arrays are of terms divided by `scale`, so that none drowns."""

    terms: tuple[str, ...]
    """(K,) names of columns, and `fixed` for what is always 1."""
    scale: Floats
    """(K,) largest value of each term."""
    solution: Floats
    """(K,) of least norm: right wherever `span` says that anything can be said."""
    covariance: Floats
    """(K, K) of the solution; NaN without rows to spare."""
    span: Floats
    """(K, K) projector onto what the rows span."""
    residual_sd: float
    """NaN without rows to spare."""
    r2: float
    rows: int
    cells: int
    """Distinct combinations of the terms."""
    rank: int

    def at(self, point: Mapping[str, float]) -> tuple[float, float]:
        """Value and standard error of a weighted sum of the coefficients, such as a prediction.

        Args:
            point: weights by term, 0 if not there: {"m": 1} asks for that coefficient, {"fixed": 1,
                "n": 64, "m": 16} for the mean at that place.

        Returns:
            NaN where the rows cannot tell; the error alone is NaN without rows to spare.
        """
        weights = np.array([point.get(term, 0.0) for term in self.terms]) / self.scale
        outside = np.linalg.norm(weights - self.span @ weights)
        if outside > UNTOLD * np.linalg.norm(weights):
            return float("nan"), float("nan")
        variance = weights @ self.covariance @ weights
        return float(weights @ self.solution), float(np.sqrt(np.maximum(variance, 0.0)))


def fit(table: pd.DataFrame, column: str, terms: Sequence[str]) -> Fit:
    """Fit a column as a weighted sum of terms; rows that lack a number are left out.

    Never fails: what a singular (S, K) design leaves open is found by its SVD.
    """
    present = table.dropna(subset=[column, *(term for term in terms if term != "fixed")])
    ones = np.ones(len(present))
    x = np.stack([ones if t == "fixed" else present[t].to_numpy(float) for t in terms], axis=1)
    y = present[column].to_numpy(float)
    scale = np.abs(x).max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    u, s, vt = np.linalg.svd(x / scale, full_matrices=False)
    rank = int((s > SINGULAR * s.max(initial=0.0)).sum())
    u, s, v = u[:, :rank], s[:rank], vt[:rank].T
    solution = v @ ((u.T @ y) / s)
    squares = float(np.sum((y - (x / scale) @ solution) ** 2))
    spread = float(np.sum((y - y.mean()) ** 2)) if len(y) else 0.0
    variance = squares / (len(y) - rank) if len(y) > rank else float("nan")
    return Fit(
        terms=tuple(terms),
        scale=scale,
        solution=solution,
        covariance=variance * (v / s**2) @ v.T,
        span=v @ v.T,
        residual_sd=float(np.sqrt(variance)),
        r2=1 - squares / spread if spread > 0 else float("nan"),
        rows=len(y),
        cells=len(np.unique(x, axis=0)),
        rank=rank,
    )
