"""Method, seed and test set of each run: from its name, path, config, or a column."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pods_lab.audit.formats import Log
from pods_lab.audit.lines import LONGEST_CELL
from pods_lab.audit.mapping import Mapping

SEED = re.compile(r"(?i)(?:^|(?<=[-_/. ]))seed[-_= ]?(\d{1,5})(?=$|[-_/. ])")
REPEAT = re.compile(r"(?i)(?:^|(?<=[-_/. ]))(?:rep|run|s)[-_= ]?(\d{1,5})(?=$|[-_/. ])")
"""What numbers the runs of a method in names without the word seed."""
LARGEST_SEED = 2**53  # above it a float no longer counts by ones
KINDS = ("name", "path", "config", "column")
PATIENCE = 10.0  # seconds for a regular expression on the names of all runs
SEARCH = """
import json, re, sys
pattern, texts = json.load(sys.stdin)
try:
    compiled = re.compile(pattern)
except (re.error, RecursionError, OverflowError) as error:
    json.dump({"error": str(error)}, sys.stdout)
    sys.exit()
groups = []
for texts_of_run in texts:
    matches = [compiled.search(text) for text in texts_of_run]
    matches = [match for match in matches if match]
    groups.append(matches[0][1] if matches and compiled.groups else None)
json.dump({"groups": groups}, sys.stdout)
"""
"""A pattern such as ((a+)+)+$ takes for ever on some texts, and `re` cannot be interrupted."""


@dataclass(frozen=True)
class LabelledRuns:
    """The runs that have a method."""

    logs: list[Log]
    runs: pd.DataFrame
    """A row per log: run, machine, series (its method), seed as it was told, test_set."""
    nameless: list[str]
    """The names of all other runs, sorted."""


def label_runs(logs: Sequence[Log], mapping: Mapping) -> LabelledRuns:
    """Read method, seed and test set of all runs; a ValueError says that no run has a method."""
    columns = {
        "run": [log.name for log in logs],
        "machine": [log.machine for log in logs],
        "series": labels(logs, "method", mapping.method),
        "seed": labels(logs, "seed", mapping.seed),
        "test_set": labels(logs, "test_set", mapping.test_set),
    }
    runs = pd.DataFrame(columns, dtype=object)
    has_method = runs.series.notna()
    if not has_method.any():
        raise ValueError(f"method={mapping.method}: no run has it")

    nameless = sorted(runs.run[~has_method])
    unlabelled = set(nameless)
    labelled_logs = [log for log in logs if log.name not in unlabelled]
    runs = runs[has_method].reset_index(drop=True)
    runs = runs.assign(series=runs.series.astype(str), rule="", n=np.nan, m=np.nan, settings="")
    return LabelledRuns(labelled_logs, runs.assign(arm=runs.series), nameless)


@dataclass(frozen=True)
class Seeds:
    """The runs with whole numbers as seeds."""

    runs: pd.DataFrame
    pair_runs: bool  # equal seeds of two methods make a pair
    notes: list[str]


def read_seeds(runs: pd.DataFrame, mapping: Mapping) -> Seeds:
    """Read the seeds of runs; if a run has none, runs of a method are numbered instead."""
    numbers = pd.to_numeric(runs.seed, errors="coerce").astype(float)
    is_seed = (numbers == np.floor(numbers)) & (numbers.abs() <= LARGEST_SEED)
    if is_seed.all():
        return Seeds(runs.assign(seed=numbers.astype(int)), pair_runs=True, notes=[])

    notes = [f"{(~is_seed).sum()} of {len(runs)} runs have no seed, so none is paired"]
    texts = runs[~is_seed & runs.seed.notna()]
    if len(texts):
        example = texts.iloc[0]
        shown = str(example.seed)[:LONGEST_CELL]
        notes.append(f"seed={mapping.seed}: {shown!r} of {example.run} is no number")
    numbered = runs.assign(seed=runs.groupby("series").cumcount())
    return Seeds(numbered, pair_runs=False, notes=notes)


def labels(logs: Sequence[Log], key: str, source: str | None) -> list[Any]:
    """Read the method, seed or test set of all runs, as `source` of the mapping says.

    Returns a value per run, None if it has none. A ValueError says that the source is none, that
    its pattern is no regular expression or takes too long, or that no run has the config key or
    column.
    """
    if source is None:
        return [None] * len(logs)
    if source == "name":
        return [from_name(log, key) for log in logs]

    kind, _colon, name = source.partition(":")
    if kind not in KINDS or not name:
        allowed = "name, config:KEY, column:NAME, path:REGEX or name:REGEX"
        raise ValueError(f"{key}={source}: must be {allowed}")
    if kind == "path":
        return search(name, _path_texts(logs), key, source)
    if kind == "name":
        return search(name, [[log.name] for log in logs], key, source)

    read = _config_value if kind == "config" else _first
    values = [read(log, name) for log in logs]
    if all(value is None for value in values):
        raise ValueError(f"{key}={source}: no run has it")
    return values


def _config_value(log: Log, key: str) -> Any:
    return log.config.get(key)


def _first(log: Log, column: str) -> Any:
    """Return what a run has first in a column; None: it has nothing."""
    cells = log.cells(column)
    return cells[0] if cells else None


def _path_texts(logs: Sequence[Log]) -> list[list[str]]:
    """Return the texts in which `path:REGEX` looks; runs of one file are told apart by names."""
    runs_of_file = Counter(log.path for log in logs)
    texts = []
    for log in logs:
        path = str(log.path)
        is_alone = runs_of_file[log.path] == 1
        texts.append([path] if is_alone else [log.name, path])
    return texts


def from_name(log: Log, key: str) -> str | None:
    """Take the seed from the name of a run, or the method, which is the name without the seed."""
    pattern = SEED if SEED.search(log.name) else REPEAT
    if key == "seed":
        match = pattern.search(log.name)
        return match[1] if match else None
    parts = [part.strip("-_. ") for part in pattern.sub("", log.name).split("/")]
    return "/".join(part for part in parts if part) or "all runs"


def search(pattern: str, texts: Sequence[Sequence[str]], key: str, source: str) -> list[Any]:
    """Return the first group of a pattern in the first text of each run that it fits.

    None: it fits no text, or has no group. Python's `re` may need longer than anybody waits, so
    another process searches, which is ended after `PATIENCE`.
    """
    command = [sys.executable, "-I", "-S", "-c", SEARCH]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([pattern, texts]),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        seconds = f"{PATIENCE:g} s on the names of {len(texts)} runs"
        raise ValueError(f"{key}={source}: takes longer than {seconds}") from error
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise ValueError(f"{key}={source}: is no regular expression: {answer['error']}")
    groups: list[Any] = answer["groups"]
    return groups
