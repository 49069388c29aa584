"""Where tables and figures are written, and how: one CSV, one JSON, each atomically."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.loading.filter import StudyFilter, folder_name
from pods.analysis.loading.study import MEASURED, Study, with_columns
from pods.runs.files import replace
from pods.runs.store import run_folders
from pods.system.text import command

PASSING = ("folder", "started", "cpu_share")
"""Columns of runs that say where and when they ran, and are left out of a figure's record."""

LATEX = {"→": r"$\to$", "±": r"$\pm$", "×": r"$\times$", "…": r"\dots{}"}
"""LaTeX of the signs that tables of this package have."""


def figures_folder(study: Path, part: str = "") -> Path:
    """Make the folder of a study's tables and figures, or the folder in it for a part of them."""
    figures = study / "figures" / part
    figures.mkdir(parents=True, exist_ok=True)
    return figures


def folder_for(
    study: Path, runs: Sequence[Path], chosen: StudyFilter, compared: Sequence[str] = ()
) -> Path:
    """Make the folder for what is written about some runs of a study.

    What stands in FOLDER/figures shows the whole study. A part of it has a folder below, whose name
    says which part it is: the choice of arms, metric and x, the arms that are `compared`, or the
    `runs` if the study has others, too. So no part takes the place of the whole study.
    """
    parts = []
    if chosen.folder:
        parts.append(chosen.folder)
    if compared:
        parts.append(folder_name(f"compare={','.join(compared)}"))

    if is_part(study, runs):
        names = _names(runs)
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
        parts.append(f"runs={len(names)}-{digest}")
    return figures_folder(study, ",".join(parts))


def is_part(study: Path, runs: Sequence[Path]) -> bool:
    """Return whether these are not all runs of a study."""
    return _names(runs) != _names(run_folders(study))


def _names(runs: Sequence[Path]) -> list[str]:
    """Return what names runs within a study, whether their paths are absolute or not."""
    return sorted({"/".join(run.parts[-3:]) for run in runs})


def write_csv(path: Path, table: pd.DataFrame, study: Study) -> None:
    """Write a table of a study as CSV, with six digits.

    A time that is not measured has a column `clock`, which says where it comes from. If it has
    series, their arm, n, m and each key that varies have columns behind them.
    """
    if "series" in table and len(table):
        table = with_columns(table, study, ("arm", "n", "m", *study.varied))
    if study.clock != MEASURED and len(table):
        table = table.assign(clock=study.clock)
    replace(path, table.to_csv(index=False, float_format="%.6g"))


def write_latex(path: Path, table: pd.DataFrame) -> None:
    """Write a table as a reader sees it, in LaTeX with the lines of the package booktabs."""
    text = table.to_latex(index=False, escape=True)
    for sign, code in LATEX.items():
        text = text.replace(sign, code)
    replace(path, text)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the command that made it."""
    about = {"command": command(), **content}
    replace(path, json.dumps(about, indent=1, ensure_ascii=False))


def provenance(study: Study) -> dict[str, Any]:
    """Record where numbers come from: runs with hash and versions, and what was left out."""
    runs = study.runs.drop(columns=list(PASSING), errors="ignore")
    rows = runs.astype(object).where(runs.notna(), None)
    return {
        "study": study.name,
        "budget": study.budget,
        "clock": study.clock,
        "prices": study.prices,
        "machines": study.machines,
        "note": study.note,
        "missing": study.missing,
        "inconsistent": study.inconsistencies,
        "runs": rows.to_dict("records"),
    }
