"""Write a study's tables and figures beside its runs: load, filter, average, draw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.compare.planned import planned_lines
from pods.analysis.loading.filter import StudyFilter, apply_filter
from pods.analysis.loading.load import load
from pods.analysis.loading.study import Study
from pods.analysis.numbers.planned import judgements_of
from pods.analysis.numbers.span import span_lines
from pods.analysis.numbers.tables import Tables, readable, slow_runs, summary_title, tables
from pods.analysis.writing import folder_for, is_part, write_csv, write_latex
from pods.system.text import short

EVERYTHING = StudyFilter()


@dataclass(frozen=True)
class StudyTables:
    """A study, and what is written about it."""

    study: Study
    planned: list[str]
    """What its plan asked and what came out, see `planned_lines`; nothing of a part of its runs."""
    tables: Tables


def read_tables(
    folder: Path, runs: Sequence[Path], chosen: StudyFilter = EVERYTHING, allow: bool = False
) -> StudyTables:
    """Load a study, see `load` and `apply_filter`, and average it."""
    loaded = load(folder, runs, allow, priced=chosen.prices is not None)
    study = apply_filter(loaded, chosen)
    planned: list[str] = []
    if not is_part(folder, runs):
        planned = planned_lines(loaded, judgements_of(loaded))
    return StudyTables(study, planned, tables(study))


def write_tables(
    folder: Path, runs: Sequence[Path], chosen: StudyFilter, written: StudyTables
) -> Path:
    """Write the tables of these runs of a study below FOLDER/figures, and return their folder."""
    figures = folder_for(folder, runs, chosen)
    write_csv(figures / "curves.csv", written.tables.curves, written.study)
    write_csv(figures / "runs.csv", written.tables.runs, written.study)
    write_csv(figures / "summary.csv", written.tables.summary, written.study)
    return figures


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
    """Yield the summary, then write the tables and the figures that the study supports.

    The summary comes first, so that it is there also where nothing can be written.

    Args:
        folder: the study's folder.
        runs: the folders of its runs.
        chosen: see `apply_filter`.
        allow: see `load`.
        drawn: `main` (accuracy against time), `none`, or `all` that the study has the runs for.
        latex: also write the summary for LaTeX.
    """
    read = read_tables(folder, runs, chosen, allow)
    study = read.study
    yield from summary_lines(study, read.tables)
    if study.plans:
        yield from read.planned

    figures_folder = write_tables(folder, runs, chosen, read)
    if latex:
        path = figures_folder / "summary.tex"
        write_latex(path, readable(read.tables.summary, study))
        yield f"LaTeX: {path}"
    if drawn == "none":
        yield f"tables: {figures_folder}"
        return

    from pods.analysis.figures import specs  # matplotlib is not needed for the tables

    figures = [specs.accuracy(study, read.tables)]
    if drawn == "all":
        figures = list(specs.figure_specs(study, read.tables))
    paths = [specs.write(figure, study, figures_folder) for figure in figures]
    yield f"figure: {paths[0]} (PDF, SVG, CSV and JSON beside it)"
    if len(paths) > 1:
        yield f"also: {', '.join(path.stem for path in paths[1:])}"
