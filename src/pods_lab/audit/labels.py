"""Method, seed and test set of each run: from its name, path, config, or a column."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pods_lab.audit.formats import Log

SEED = re.compile(r"(?i)(?:^|(?<=[-_/. ]))(?:seed|rep|run|s)[-_= ]?(\d{1,5})(?=$|[-_/. ])")
PATIENCE = 10.0  # seconds for a regular expression on the names of all runs
SEARCH = """
import json, re, sys
pattern, texts = json.load(sys.stdin)
try:
    compiled = re.compile(pattern)
except (re.error, RecursionError, OverflowError) as error:
    json.dump({"error": str(error)}, sys.stdout)
    sys.exit()
found = []
for several in texts:
    matches = [match for match in map(compiled.search, several) if match]
    found.append(matches[0][1] if matches and compiled.groups else None)
json.dump({"found": found}, sys.stdout)
"""
"""A pattern such as ((a+)+)+$ takes for ever on some texts, and `re` cannot be interrupted."""


def labels(logs: Sequence[Log], key: str, source: str | None) -> list[Any]:
    """Read the method, seed or test set of all runs, as `source` of the mapping says.

    Returns a value per run, None if it has none. A ValueError says that the source is none, that
    its pattern is no regular expression or takes too long, or that no run has the config key or
    column.
    """
    if source is None:
        return [None] * len(logs)
    kind, _colon, name = source.partition(":")
    if source == "name":
        return [_from_name(log, key) for log in logs]
    if kind in ("path", "name") and name:
        shared = Counter(log.path for log in logs)
        texts = [[str(log.path)] if shared[log.path] == 1 else [log.name, str(log.path)]
                 for log in logs]  # fmt: skip
        return search(name, texts if kind == "path" else [[log.name] for log in logs], key, source)
    if kind == "config" and name:
        values = [log.config.get(name) for log in logs]
    elif kind == "column" and name:
        values = [_first(log, name) for log in logs]
    else:
        allowed = "name, config:KEY, column:NAME, path:REGEX or name:REGEX"
        raise ValueError(f"{key}={source}: must be {allowed}")
    if all(value is None for value in values):
        raise ValueError(f"{key}={source}: no run has it")
    return values


def _from_name(log: Log, key: str) -> str | None:
    """Take the seed from the name of a run, or the method, which is the name without the seed."""
    if key == "seed":
        match = SEED.search(log.name)
        return match[1] if match else None
    return SEED.sub("", log.name).strip("-_/. ") or "all runs"


def _first(log: Log, column: str) -> Any:
    """Return the first value that a column of a run has."""
    return next((row[column] for row in log.rows if row.get(column) is not None), None)


def search(pattern: str, texts: Sequence[Sequence[str]], key: str, source: str) -> list[Any]:
    """Return the first group of a pattern in the first text of each run that it fits.

    None: it fits no text, or has no group. Python's `re` may need longer than anybody waits, so
    another process searches, which is ended after `PATIENCE`.
    """
    command = [sys.executable, "-I", "-S", "-c", SEARCH]
    try:
        done = subprocess.run(
            command, input=json.dumps([pattern, texts]), capture_output=True, text=True,
            timeout=PATIENCE, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        seconds = f"{PATIENCE:g} s on the names of {len(texts)} runs"
        raise ValueError(f"{key}={source}: takes longer than {seconds}") from error
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise ValueError(f"{key}={source}: is no regular expression: {answer['error']}")
    found: list[Any] = answer["found"]
    return found
