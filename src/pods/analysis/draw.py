"""Write a study's tables and figures beside its runs: load, filter, average, draw."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.study import Study
from pods.analysis.numbers.tables import Tables, readable, slow_runs, summary_title, tables
from pods.analysis.writing import folder_for, write_csv

EVERYTHING = StudyFilter()


def write_tables(
    folder: Path, runs: Sequence[Path], chosen: StudyFilter = EVERYTHING, allow: bool = False
) -> tuple[Study, Tables]:
    """Load a study, see `load` and `apply_filter`, and write its tables below FOLDER/figures."""
    study = apply_filter(load(folder, runs, allow), chosen)
    made, figures = tables(study), folder_for(folder, runs, chosen)
    for name in ("curves", "runs", "summary"):
        write_csv(figures / f"{name}.csv", getattr(made, name), study)
    return study, made


def summary_lines(study: Study, made: Tables) -> Iterator[str]:
    """Yield the summary for a screen, and everything that was left out."""
    table = readable(made.summary, study).to_string(index=False)
    yield f"{summary_title(made.summary, study)}\n{table}"
    if study.note:
        yield study.note
    if study.missing:
        complete = int(study.runs.complete.sum())
        yield f"complete runs: {complete}; missing: {len(study.missing)}"
        yield from study.missing
    yield from study.inconsistencies
    yield from slow_runs(study)


def draw(
    folder: Path,
    runs: Sequence[Path],
    chosen: StudyFilter = EVERYTHING,
    allow: bool = False,
    drawn: str = "main",
) -> Iterator[str]:
    """Write the tables and the figures that the study supports; yield lines for the user.

    `drawn` is `main` (accuracy against time), `none`, or `all` that the study has the runs for.
    """
    study, made = write_tables(folder, runs, chosen, allow)
    target = folder_for(folder, runs, chosen)
    yield from summary_lines(study, made)
    if drawn == "none":
        yield f"tables: {target}"
        return
    from pods.analysis.figures import specs  # matplotlib is not needed for the tables

    asked = [specs.accuracy(study, made)] if drawn == "main" else specs.figure_specs(study, made)
    paths = [specs.write(spec, study, target) for spec in asked]
    yield f"figure: {paths[0]} (PDF, SVG, CSV and JSON beside it)"
    if paths[1:]:
        yield f"also: {', '.join(path.stem for path in paths[1:])}"
