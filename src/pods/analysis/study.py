"""A study's tables and figures, written beside its runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pods.analysis.curves import counts
from pods.analysis.load import Study, load
from pods.analysis.tables import Tables, readable, tables, write
from pods.runs.files import drop_temporaries


def aggregate(
    folder: Path, runs: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False
) -> tuple[Study, Tables]:
    """Read the runs and write curves, runs and summary into FOLDER/figures.

    Raises:
        ValueError: as `load`; nothing was written.
    """
    study = load(folder, runs, allow_missing, allow_mixed)
    made = tables(study)
    write(made, figures_of(folder))
    return study, made


def figures_of(folder: Path) -> Path:
    """Where a study's tables and figures go; what a killed process left half-written there goes."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drop_temporaries(figures)
    return figures


def said(study: Study, made: Tables) -> Iterator[str]:
    """The summary for a screen, and what was left out."""
    yield str(readable(made.summary).to_string(index=False))
    if study.note:
        yield study.note
    if study.holes:
        yield f"{int(study.runs.complete.sum())} runs are whole; missing: {len(study.holes)}"
        yield from study.holes
        yield from counts(made.curves)
    yield from study.mixed


def draw(
    folder: Path,
    runs: Sequence[Path],
    allow_missing: bool = False,
    allow_mixed: bool = False,
    overlay: tuple[Path, Sequence[Path]] | None = None,
    details: bool = False,
) -> Iterator[str]:
    """Aggregate, draw the figures that the study supports, and yield lines for the user.

    Args:
        folder: of the study.
        runs: folders of its runs.
        allow_missing: leave out what has a hole, and mark the figures.
        allow_mixed: draw runs that are not alike, and mark the figures.
        overlay: folder and runs of a study whose accuracy is drawn over this one's.
        details: also phases on their own, and what else was measured.
    """
    study, made = aggregate(folder, runs, allow_missing, allow_mixed)
    over = None if overlay is None else load(*overlay, allow_missing, allow_mixed)
    from pods.analysis import figures  # matplotlib is not needed for the tables

    yield from said(study, made)
    wanted = [one for one in figures.drawings(study, made) if details or not one.detail]
    if over is not None:
        from pods.analysis.overlay import overlaid

        yield from filter(None, [over.note, *over.holes, *over.mixed])
        wanted.append(overlaid(study, over))
    drawn = [figures.write(drawing, study, folder / "figures") for drawing in wanted]
    yield f"figure: {drawn[0]} (PDF, SVG, CSV and JSON beside it)"
    if drawn[1:]:
        yield f"also: {', '.join(path.stem for path in drawn[1:])}"
