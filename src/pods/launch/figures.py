"""Draw what finished runs have left: the whole study, or these runs alone if it has gaps."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from pods.runs.store import run_folders
from pods.system.console import printable


def draw_figures(runs: Sequence[Path]) -> None:
    """Write the tables and the figure of each study that these runs belong to, and print them.

    The figure of a study shows all runs in its folder. If they cannot be drawn together, since some
    are not done or differ from the others, these runs alone are drawn, into a folder of their own.
    """
    for study in dict.fromkeys(run.parents[2] for run in runs):
        own = [run for run in runs if run.parents[2] == study]
        whole = run_folders(study)

        refusal = _draw(study, whole)
        if refusal and len(own) < len(whole):
            print(_why_a_part(study, refusal))
            refusal = _draw(study, own)
        if refusal:
            print(f"no figure: {refusal}")


def _draw(study: Path, runs: Sequence[Path]) -> str:
    """Draw some runs of a study and print the result; return why that is impossible, if it is."""
    from pods.analysis.draw import draw  # pandas and matplotlib take long to import

    try:
        lines = list(draw(study, runs))
    except ValueError as refusal:
        return printable(str(refusal))
    print(*lines, sep="\n")
    return ""


def _why_a_part(study: Path, refusal: str) -> str:
    """Say that the figure does not show the whole study, with the first of the reasons."""
    reason = refusal.splitlines()[:2][-1]  # the line below the heading, if there is one
    return (
        f"the study's other runs cannot be drawn with these: {reason}\n"
        f"(`pods plot {shlex.quote(str(study))}` says all; the figure shows these runs alone)"
    )
