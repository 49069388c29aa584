"""Write a study's tables and figures beside its runs: load, filter, average, draw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.compare.planned import planned_lines
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.study import Study
from pods.analysis.numbers.span import span_lines
from pods.analysis.numbers.tables import Tables, readable, slow_runs, summary_title, tables
from pods.analysis.writing import folder_for, write_csv, write_latex
from pods.system.text import short

EVERYTHING = StudyFilter()


@dataclass(frozen=True)
class WrittenTables:
    """A study, its tables, and the folder that they were written into."""

    study: Study
    planned: list[str]
    """What its plan asked and what came out; see `planned_lines`."""
    tables: Tables
    folder: Path


def write_tables(
    folder: Path, runs: Sequence[Path], chosen: StudyFilter = EVERYTHING, allow: bool = False
) -> WrittenTables:
    """Load a study, see `load` and `apply_filter`, and write its tables below FOLDER/figures."""
    loaded = load(folder, runs, allow, priced=chosen.prices is not None)
    study = apply_filter(loaded, chosen)
    written = WrittenTables(
        study, planned_lines(loaded), tables(study), folder_for(folder, runs, chosen)
    )
    write_csv(written.folder / "curves.csv", written.tables.curves, study)
    write_csv(written.folder / "runs.csv", written.tables.runs, study)
    write_csv(written.folder / "summary.csv", written.tables.summary, study)
    return written


def summary_lines(study: Study, averaged: Tables) -> Iterator[str]:
    """Yield the summary for a screen, and everything that was left out."""
    table = readable(averaged.summary, study).to_string(index=False).splitlines()
    rows = short(table, rest="more in summary.csv")
    yield "\n".join([summary_title(averaged.summary, study), *rows])
    if study.note:
        yield study.note
    yield from span_lines(study)
    if study.missing:
        yield f"complete runs: {study.runs.complete.sum()}; missing: {len(study.missing)}"
        yield from short(study.missing)
    yield from short(study.inconsistencies)
    yield from slow_runs(study)


def draw(
    folder: Path,
    runs: Sequence[Path],
    chosen: StudyFilter = EVERYTHING,
    allow: bool = False,
    drawn: str = "main",
    latex: bool = False,
) -> Iterator[str]:
    """Write the tables and the figures that the study supports; yield lines for the user.

    Args:
        folder: the study's folder.
        runs: the folders of its runs.
        chosen: see `apply_filter`.
        allow: see `load`.
        drawn: `main` (accuracy against time), `none`, or `all` that the study has the runs for.
        latex: also write the summary for LaTeX.
    """
    written = write_tables(folder, runs, chosen, allow)
    study = written.study
    yield from summary_lines(study, written.tables)
    if study.plans:
        yield from written.planned
    if latex:
        path = written.folder / "summary.tex"
        write_latex(path, readable(written.tables.summary, study))
        yield f"LaTeX: {path}"
    if drawn == "none":
        yield f"tables: {written.folder}"
        return
    from pods.analysis.figures import specs  # matplotlib is not needed for the tables

    figures = [specs.accuracy(study, written.tables)]
    if drawn == "all":
        figures = list(specs.figure_specs(study, written.tables))
    paths = [specs.write(figure, study, written.folder) for figure in figures]
    yield f"figure: {paths[0]} (PDF, SVG, CSV and JSON beside it)"
    if len(paths) > 1:
        yield f"also: {', '.join(path.stem for path in paths[1:])}"
