"""A study's figure and tables, written beside its runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from pods.analysis.curves import curves, paired, phase_columns, summary
from pods.analysis.load import Study, load
from pods.runs.files import replace


def aggregate(
    folder: Path, runs: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False
) -> tuple[Study, pd.DataFrame, pd.DataFrame]:
    """Read the runs and write curves, runs, summary and paired differences into FOLDER/figures.

    Returns:
        The study, its curves and its summary.
    """
    study = load(runs, allow_missing, allow_mixed)
    curve = curves(study.evaluations)
    table = summary(study.evaluations, study.steps, curve)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    tables = {
        "accuracy_vs_time.csv": curve,
        "accuracy_vs_time.runs.csv": study.evaluations,
        "paired.csv": paired(study.evaluations, curve),
        "summary.csv": table,
    }
    for name, frame in tables.items():
        replace(figures / name, frame.to_csv(index=False, float_format="%.6g"))
    return study, curve, table


def draw(
    folder: Path, runs: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False
) -> Iterator[str]:
    """Aggregate, draw the figure, and yield lines for the user: the table, and what is where."""
    study, curve, table = aggregate(folder, runs, allow_missing, allow_mixed)
    from pods.analysis import plots  # matplotlib is not needed for the tables

    incomplete = ", INCOMPLETE" if study.holes else ""
    title = f"{folder.name}: {study.budget} a run{incomplete}"
    paths = plots.save(plots.draw_study(curve, table, study, title),
                       folder / "figures" / "accuracy_vs_time")  # fmt: skip
    yield format_table(table)
    yield f"figure: {paths[0]} (PDF and CSV beside it)"


def format_table(table: pd.DataFrame) -> str:
    """The summary for a screen."""

    def pair(row: pd.Series, name: str) -> str:
        error = row[f"{name}_stderr"]
        return f"{row[name]:.3f}" + ("" if pd.isna(error) else f" ± {error:.3f}")

    phases = phase_columns(table)
    rows = [
        {
            "series": row.series,
            "n": row.n,
            f"accuracy at {row.seconds:.3g} s": pair(row, "accuracy"),
            "mean until then": pair(row, "mean_accuracy"),
            "steps": f"{row.steps:.0f}",
            "ms/step": f"{1000 * row.seconds_per_step:.1f}",
            **{p.removeprefix("seconds/"): f"{1000 * row[p]:.1f}" for p in phases},
        }
        for _, row in table.iterrows()
    ]
    return str(pd.DataFrame(rows).to_string(index=False))
