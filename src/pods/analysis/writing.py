"""How tables and their origin are written: one CSV, one JSON, each atomically."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.loading.study import MEASURED, Study, with_columns
from pods.runs.files import replace
from pods.system.text import command

PASSING = ("folder", "cpu_share")
"""Columns of runs that say where and when they ran, and are left out of a figure's record."""


def figures_folder(study: Path, choice: str = "") -> Path:
    """Make the folder of a study's tables and figures.

    A choice of what is shown has a folder of its own, so it overwrites no default figure.
    """
    figures = study / "figures" / choice
    figures.mkdir(parents=True, exist_ok=True)
    return figures


def write_csv(path: Path, table: pd.DataFrame, study: Study) -> None:
    """Write a table of a study as CSV, with six digits, and a column `clock` if it is modelled.

    Where it has series, their arm, n, m and each key that varies have columns beside.
    """
    if "series" in table and len(table):
        table = with_columns(table, study, ("arm", "n", "m", *study.varied))
    if study.clock != MEASURED and len(table):
        table = table.assign(clock=study.clock)
    replace(path, table.to_csv(index=False, float_format="%.6g"))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the command that made it."""
    about = {"command": command(), **content}
    replace(path, json.dumps(about, indent=1, ensure_ascii=False))


def provenance(study: Study) -> dict[str, Any]:
    """Record where numbers come from: runs with hash and versions, and what was left out."""
    columns = [column for column in study.runs.columns if column not in PASSING]
    runs = study.runs[columns].astype(object).where(study.runs[columns].notna(), None)
    return {
        "study": study.name,
        "budget": study.budget,
        "clock": study.clock,
        "machines": study.machines,
        "note": study.note,
        "missing": study.missing,
        "inconsistent": study.inconsistencies,
        "runs": runs.to_dict("records"),
    }
