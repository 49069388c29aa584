"""Write a study's tables and figures beside its runs."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pods.analysis.curves import phase_columns, run_counts
from pods.analysis.noise import slow_runs
from pods.analysis.study import Study, check_same_clock, load
from pods.analysis.tables import Tables, readable, tables, write
from pods.analysis.view import View, choose
from pods.runs.files import drop_temporaries

if TYPE_CHECKING:
    from pods.analysis.look import Look

DEFAULT = View()


def aggregate(
    folder: Path,
    runs: Sequence[Path],
    allow_missing: bool = False,
    allow_mixed: bool = False,
    view: View = DEFAULT,
) -> tuple[Study, Tables]:
    """Load a study and write its curves, runs and summary below FOLDER/figures.

    Raises:
        ValueError: see `load` and `choose`; nothing was written.
    """
    study = choose(load(folder, runs, allow_missing, allow_mixed), view)
    its_tables = tables(study)
    write(its_tables, figures_folder(folder, view))
    return study, its_tables


def figures_folder(study: Path, view: View = DEFAULT) -> Path:
    """Make the folder of a study's tables and figures, without leftovers of killed processes.

    A choice has a folder of its own, `View.folder`, and overwrites no default figure.
    """
    figures = study / "figures" / view.folder
    figures.mkdir(parents=True, exist_ok=True)
    drop_temporaries(figures)
    return figures


def summary_lines(study: Study, tables: Tables) -> Iterator[str]:
    """Yield the summary for a screen, and everything that was left out.

    On a terminal that is too narrow for all columns the phases of a step are left out; summary.csv
    has them.
    """
    shown = readable(tables.summary, study.x, study.metric)
    text = str(shown.to_string(index=False))
    if sys.stdout.isatty() and shutil.get_terminal_size().columns <= text.index("\n"):
        phases = [name.removeprefix("seconds/") for name in phase_columns(tables.summary)]
        text = str(shown.drop(columns=phases).to_string(index=False))
    yield text
    if study.note:
        yield study.note
    if study.missing:
        complete = int(study.runs.complete.sum())
        yield f"complete runs: {complete}; missing: {len(study.missing)}"
        yield from study.missing
        yield from run_counts(tables.curves, study.x)
    yield from study.inconsistencies
    yield from slow_runs(study).values()


def draw(
    folder: Path,
    runs: Sequence[Path],
    allow_missing: bool = False,
    allow_mixed: bool = False,
    overlay: tuple[Path, Sequence[Path]] | None = None,
    details: bool = False,
    view: View = DEFAULT,
    styled: tuple["Look", Path | None] | None = None,
) -> Iterator[str]:
    """Write the tables and the figures that the study supports; yield lines for the user.

    Args:
        folder: the study's folder.
        runs: the folders of its runs.
        allow_missing: leave out what is missing, and mark the figures.
        allow_mixed: draw inconsistent runs, and mark the figures.
        overlay: folder and runs of a study whose accuracy is drawn over this one's.
        details: also draw the phases of a step and the other metrics.
        view: arms, metric, x, window and baseline; an overlay has no choice.
        styled: draw only the accuracy, with this look, into this file; without a file it goes
            beside the study's figures as `styled`, in all formats.
    """
    study, its_tables = aggregate(folder, runs, allow_missing, allow_mixed, view)
    over = None if overlay is None else load(*overlay, allow_missing, allow_mixed)
    from pods.analysis import figures  # matplotlib is not needed for the tables

    yield from summary_lines(study, its_tables)
    if styled is not None:
        look, out = styled
        stem = figures_folder(folder, view) / "styled"
        paths = (
            [stem.with_suffix(end) for end in (".pdf", ".png", ".svg")] if out is None else [out]
        )
        drawing = figures.accuracy(study, its_tables, look)
        figures.write_styled(drawing, study, paths, look)
        yield f"figure: {', '.join(map(str, paths))} (JSON beside it)\ncaption: {drawing.caption}"
        return
    chosen = [one for one in figures.drawings(study, its_tables) if details or not one.detail]
    if over is not None:
        from pods.analysis.overlay import overlaid

        check_same_clock(study, over)
        yield from filter(None, [over.note, *over.missing, *over.inconsistencies])
        chosen.append(overlaid(study, over))
    paths = [figures.write(drawing, study, figures_folder(folder, view)) for drawing in chosen]
    yield f"figure: {paths[0]} (PDF, SVG, CSV and JSON beside it)"
    if paths[1:]:
        yield f"also: {', '.join(path.stem for path in paths[1:])}"
