"""Curves of the runs of a study, and a figure to draw on, for the scripts beside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.numbers.outcomes import RunCurve, run_curves
from pods.runs.store import run_folders


def curves_of(folder: Path, **view: Any) -> dict[str, list[RunCurve]]:
    """Return the runs of each arm of a study, as `StudyFilter(**view)` shows them."""
    study = apply_filter(load(folder, run_folders(folder)), StudyFilter(**view))
    return {str(name): run_curves(study, name) for name in study.runs.series.unique()}


def report(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, and print it."""
    table.to_csv(path, index=False, float_format="%.6g")
    print(table.round(4).to_string(index=False))


@contextmanager
def axes(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield the axes of a figure that is written at the end."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(width, height), layout="constrained")
    yield axis
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
