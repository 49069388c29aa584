"""Store published logs as a study: the tables that our own runs give, and their provenance."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pods.runs.files import replace, sha256
from pods.runs.store import run_folders

Row = dict[str, Any]
TABLES = ("runs.csv", "evaluations.csv")
META = "import.json"
META_KEYS = {"family", "machines", "budget", "note", "holes", "files", "tables", "plotted_seconds"}
IRREGULAR = (
    "Instruct-GSM8K-512-64-2-Run9.json",
    "Instruct-GSM8K-512-64-2-Run10.json",
    "Instruct-Llama-512-64-16-0.04-Run4.json",
    "GR7B-s15-p8-n32-m32-ga16",
    "GR7B-s24-p8-n32-m32-ga16",
)
"""Runs that are irregular in the release itself (at 187f43b); they are left out and named."""
LICENCE = "Apache-2.0 (the authors'); a copy of the logs has to carry their LICENSE"


class Published(NamedTuple):
    """Logs that share a training set, a test set and a time axis."""

    runs: pd.DataFrame
    """One row per run: run, series, arm, rule, n, m, groups, prompts, seed, machine, complete."""
    evaluations: pd.DataFrame
    """One row per (run, checkpoint): series, seed, run, step, train_seconds, accuracy, lenient
    (only where their grader is known to be lenient), format, both, length, repeats, questions, and
    shared (true where all runs share one measurement)."""
    meta: dict[str, Any]
    """The content of `import.json`, among others holes (files and runs that are left out because
    they are irregular or missing, with the reason), seconds_per_step of each series, a note that a
    reader of these numbers has to know, and files (the SHA-256 of each file that was read)."""


def collect(
    family: str,
    dataset: str,
    runs: Sequence[tuple[Row, Sequence[Row]]],
    paths: Sequence[Path],
    *,
    holes: Sequence[str],
    budget: str,
    plotted_seconds: float,
    note: str,
) -> Published:
    """Make the tables and the content of `import.json` (see `Published`).

    Args:
        family: the family's name.
        dataset: the test set.
        runs: each run's description and evaluations; without any it is incomplete.
        paths: the family's files; missing ones are ignored.
        holes: the files and runs that are left out, with the reason.
        budget: the training time of a run, as text.
        plotted_seconds: the end of the authors' time axis.
        note: what a reader has to know.
    """
    evaluations = pd.DataFrame(
        [
            {**{key: run[key] for key in ("series", "seed", "run")}, **row}
            for run, rows in runs
            for row in rows
        ]
    )
    meta = {
        "family": family,
        "dataset": dataset,
        "budget": budget,
        "machines": sorted({run["machine"] for run, _ in runs}),
        "note": note,
        "licence": LICENCE,
        "plotted_seconds": plotted_seconds,
        "seconds_per_step": _seconds_per_step(evaluations, plotted_seconds),
        "holes": list(holes),
        "files": {path.name: sha256(path) for path in paths if path.is_file()},
    }
    described = pd.DataFrame([{**run, "complete": bool(rows)} for run, rows in runs])
    return Published(described, evaluations, meta)


def describe(name: re.Match[str], series: str, arm: str, rule: str, machine: str) -> Row:
    """Describe a run as a row of `Published.runs`, without `complete`.

    The name has n, m and seed, and on several GPUs groups and prompts.
    """
    parts = {"groups": 1, "prompts": 1, **name.groupdict()}
    numbers = {key: int(parts[key]) for key in ("n", "m", "groups", "prompts", "seed")}
    run = name[0].removesuffix(".json")
    return {"run": run, "series": series, "arm": arm, "rule": rule, **numbers, "machine": machine}


def _seconds_per_step(evaluations: pd.DataFrame, plotted_seconds: float) -> dict[str, float]:
    """Average time / step over the runs of each series, at the end of the authors' time axis.

    Source: scripts/plot.py, "parse logs": at the last checkpoint that is drawn. Their scripts for
    8 GPUs also take the evaluation nearest to the end, but divide by W&B's step counter, which is
    not the number of optimizer steps.
    """
    if not len(evaluations):
        return {}
    distance = (evaluations.train_seconds - plotted_seconds).abs()
    last = evaluations.loc[distance.groupby(evaluations.run).idxmin()]
    rates = (last.train_seconds / last.step).groupby(last.series).mean()
    return {str(series): float(rate) for series, rate in rates.items()}


def unexpected(holes: Sequence[str]) -> list[str]:
    """Return the irregularities that the release itself does not have."""
    return [line for line in holes if line.partition(":")[0] not in IRREGULAR]


def write_import(
    published: Published, study: Path, allow_missing: bool = False, command: str = ""
) -> Path:
    """Write the tables into STUDY/imported, `import.json` last, and return that folder.

    An import may be repeated.

    Args:
        published: the logs that were read.
        study: the study's folder.
        allow_missing: leave out whatever is irregular, not only what is so in the release itself.
        command: the command that the user typed, for the record.

    Raises:
        ValueError: something is irregular that is not so in the release, no run is left, or the
            study holds something else.
    """
    runs, evaluations, meta = published
    if (lines := unexpected(meta["holes"])) and not allow_missing:
        raise ValueError("\n".join(["irregular (--allow-missing leaves it out):", *lines]))
    if not len(evaluations):
        raise ValueError(f"{meta['family']}: no regular run is left to import")
    if run_folders(study):
        raise ValueError(f"{study} has runs of its own: import into another study")
    folder = study / "imported"
    contents = {
        name: table.to_csv(index=False, lineterminator="\n").encode()
        for name, table in zip(TABLES, (runs, evaluations), strict=True)
    }
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    meta = {"command": command, **meta, "tables": hashes}
    if (folder / META).exists():
        earlier = _read_meta(folder)
        if {**earlier, "command": command} != meta:
            raise ValueError(
                f"{folder} holds another import ({earlier['family']} of {len(earlier['files'])} "
                "files): choose another study, or remove that folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        replace(folder / name, content, durable=True)
    replace(folder / META, json.dumps(meta, indent=1, ensure_ascii=False), durable=True)
    return folder


def read_import(study: Path) -> Published:
    """Read what `write_import` wrote; floats are read back exactly.

    Raises:
        ValueError: a file is missing or damaged; the message names it.
    """
    folder = study / "imported"
    meta = _read_meta(folder)
    for name in TABLES:
        path = folder / name
        if not path.is_file() or sha256(path) != meta["tables"].get(name):
            raise ValueError(f"{path} is missing, or not the file that {META} names: import again")
    runs, evaluations = (pd.read_csv(folder / t, float_precision="round_trip") for t in TABLES)
    return Published(runs, evaluations, meta)


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / META
    try:
        meta = json.loads(path.read_bytes())
        if missing := META_KEYS - set(meta):
            raise ValueError(f"it lacks {min(missing)}")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is missing or damaged ({error}): remove {folder} and import again"
        ) from error
    return dict(meta)
