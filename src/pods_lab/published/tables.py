"""The tables of a family of logs: those that our own runs give."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.loading.imports import META, TABLES, Imported
from pods.analysis.loading.study import KEY
from pods.runs.files import replace, sha256, write_json
from pods.runs.store import run_folders

LICENCE = "Apache-2.0 (the authors'); a copy of the logs has to carry their LICENSE"
Row = dict[str, Any]


def collect(
    runs: Sequence[tuple[Row, Sequence[Row]]], paths: Sequence[Path], **about: Any
) -> Imported:
    """Make the tables and what is known about them (see `Imported`).

    `runs` has each run's description and evaluations; without any it is incomplete. Of the paths of
    the family's files missing ones are ignored; `about` are missing, budget, until and note.
    """
    evaluations = [{key: run[key] for key in KEY} | row for run, rows in runs for row in rows]
    about |= {
        "machines": sorted({run["machine"] for run, _ in runs}),
        "licence": LICENCE,
        "files": {path.name: sha256(path) for path in paths if path.is_file()},
    }
    described = [{**run, "complete": bool(rows)} for run, rows in runs]
    return Imported(pd.DataFrame(described), pd.DataFrame(evaluations), about)


def write_import(imported: Imported, study: Path, command: str = "") -> Path:
    """Write the tables into STUDY/imported, `import.json` last, and return that folder.

    `ValueError`: no run is left, or the study has runs of its own.
    """
    if not len(imported.evaluations):
        raise ValueError(f"{study}: no run is left to import")
    if run_folders(study):
        raise ValueError(f"{study} has runs of its own: import into another study")
    folder = study / "imported"
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(TABLES, imported[:2], strict=True):
        replace(folder / name, table.to_csv(index=False, lineterminator="\n"), durable=True)
    tables = {name: sha256(folder / name) for name in TABLES}
    write_json(folder / META, {"command": command, **imported.about, "tables": tables})
    return folder


def describe(
    name: re.Match[str], prefix: str, arm: str, suffix: str, rule: str, machine: str
) -> Row:
    """Describe a run as a row of `Imported.runs`, without `complete`.

    The name has n, m and seed, and on several GPUs groups and prompts.
    """
    parts = {"groups": 1, "prompts": 1, **name.groupdict()}
    numbers = {key: int(parts[key]) for key in ("n", "m", "groups", "prompts", "seed")}
    run, series = name[0].removesuffix(".json"), f"{prefix} {arm} {name['n']}→{name['m']}{suffix}"
    return {"run": run, "series": series, "arm": arm, "rule": rule, **numbers, "machine": machine}
