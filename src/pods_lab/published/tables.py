"""The tables of a family of logs: those that our own runs give."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pods.analysis.loading.imports import META, TABLES, Imported
from pods.analysis.loading.study import KEY
from pods.runs.files import replace, sha256, write_json
from pods.runs.store import run_folders

LICENCE = "Apache-2.0 (the authors'); a copy of the logs has to carry their LICENSE"
Row = dict[str, Any]


class RunRows(NamedTuple):
    """A run: its row of `Imported.runs`, and its evaluations; without any it is incomplete."""

    run: Row
    evaluations: list[Row]


def collect(runs: Sequence[RunRows], paths: Sequence[Path], about: Row) -> Imported:
    """Make the tables and what is known about them (see `Imported`).

    Of the paths of the family's files missing ones are ignored; `about` has missing, budget, until
    and note.
    """
    described = []
    evaluations = []
    for run, rows in runs:
        described.append(run | {"complete": bool(rows)})
        key = {name: run[name] for name in KEY}
        evaluations += [key | row for row in rows]
    origin = {
        "machines": sorted({run["machine"] for run, _ in runs}),
        "licence": LICENCE,
        "files": {path.name: sha256(path) for path in paths if path.is_file()},
    }
    return Imported(pd.DataFrame(described), pd.DataFrame(evaluations), about | origin)


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

    checksums = {}
    for name, table in zip(TABLES, imported[:2], strict=True):
        text = table.to_csv(index=False, lineterminator="\n")
        replace(folder / name, text, durable=True)
        checksums[name] = sha256(folder / name)
    write_json(folder / META, {"command": command} | imported.about | {"tables": checksums})
    return folder


def describe(
    name: re.Match[str], *, prefix: str, arm: str, rule: str, machine: str, suffix: str = ""
) -> Row:
    """Describe a run as a row of `Imported.runs`, without `complete`.

    Args:
        name: of the run's file or column: n, m and seed, and on several GPUs groups and prompts.
        prefix: first word of the name of its series.
        arm: as in our presets.
        rule: of down-sampling.
        machine: on which it ran.
        suffix: ends the name of its series.
    """
    parts = {"groups": 1, "prompts": 1} | name.groupdict()
    return {
        "run": name[0].removesuffix(".json"),
        "series": f"{prefix} {arm} {name['n']}→{name['m']}{suffix}",
        "arm": arm,
        "rule": rule,
        "n": int(parts["n"]),
        "m": int(parts["m"]),
        "groups": int(parts["groups"]),
        "prompts": int(parts["prompts"]),
        "seed": int(parts["seed"]),
        "machine": machine,
    }
