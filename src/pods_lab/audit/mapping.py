"""Which columns of the logs are score, step, time and tokens, and what gives method and seed.

A mapping has the keys that `columns.yaml` explains; what is not given is proposed from its names.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pods_lab.audit.formats import Log

NAMES = yaml.safe_load(Path(__file__).with_name("columns.yaml").read_text())
SUM = "sum:"  # before the name of a column with the amount of each step, such as its seconds
SEED = re.compile(r"(?i)(?:^|(?<=[-_/. ]))(?:seed|rep|run|s)[-_= ]?(\d{1,5})(?=$|[-_/. ])")
Mapping = dict[str, Any]


def read_map(path: Path) -> Mapping:
    """Read a mapping file, which may lack keys; a ValueError says that it is none."""
    try:
        content = dict(yaml.safe_load(path.read_text()) or {})
    except (OSError, yaml.YAMLError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"map={path}: must be a file of keys and values: {reason}") from error
    check_keys(content, f"map={path}: ")
    return content


def check_keys(given: Mapping, where: str = "") -> None:
    """Raise a ValueError if a mapping, which `where` names, has a key that there is not."""
    for key in given.keys() - NAMES["about"].keys():
        raise ValueError(f"{where}{key}: must be one of {', '.join(NAMES['about'])}")


def write_map(mapping: Mapping, path: Path) -> None:
    """Write a mapping as a file of ten lines; one that is there stays."""
    if path.exists():
        raise ValueError(f"{path}: exists already")
    lines = [f"{k}: {json.dumps(mapping[k])}  # {about}\n" for k, about in NAMES["about"].items()]
    path.write_text("".join(lines))


def propose(logs: Sequence[Log], given: Mapping) -> tuple[Mapping, list[str]]:
    """Complete what is given by what the logs have, or raise a ValueError; return how to say it."""
    columns = Counter(column for log in logs for column in log.columns)
    scores = [name for pattern in NAMES["score"] for name in sorted(columns)
              if re.fullmatch(pattern, name)]  # fmt: skip
    keys = [key for key in NAMES["method"] if all(log.config.get(key) for log in logs)]
    seeds = [key for key in differing(logs) if key.split(".")[-1] == "seed"]
    named = "name" if any(SEED.search(log.name) for log in logs) else None
    proposed: Mapping = {
        "score": next(iter(scores), None),
        "step": [name for name in NAMES["step"] if name in columns],
        "seconds": _most_common(NAMES["seconds"], columns),
        "tokens": _most_common(NAMES["tokens"], columns),
        "method": f"config:{keys[0]}" if keys else "name",
        "seed": f"config:{min(seeds, key=len)}" if seeds else named,
        "test_set": next((f"column:{name}" for name in NAMES["test_set"] if name in columns), None),
        **{"questions": None, "repeats": 1, "baseline": None},
    }
    mapping = proposed | given
    for key in ("score", "seconds", "tokens"):
        name = (mapping[key] or "").removeprefix(SUM)
        if name not in columns and (name or key == "score"):
            shown = ", ".join(sorted(columns)[:20])
            raise ValueError(f"{key}={name}: --map must name a column, such as {shown}")
    said = [f"{key}: {mapping[key]} ({'given' if key in given else 'proposed'})" for key in mapping]
    other = [name for name in scores if name != mapping["score"]]
    return mapping, [*said, f"other scores: {', '.join(other[:6])}"] if other else said


def _most_common(names: Sequence[str], columns: Counter[str]) -> str | None:
    """Return the name that most logs have, the first of several; None if no log has any."""
    best = max(names, key=lambda name: columns[name.removeprefix(SUM)])
    return best if columns[best.removeprefix(SUM)] else None


def differing(logs: Sequence[Log]) -> list[str]:
    """List the config keys in which the runs differ, for `--by`."""
    keys = sorted({key for log in logs for key in log.config if key != "id" and key[:1] != "_"})
    return [key for key in keys if len({str(log.config.get(key)) for log in logs}) > 1]


def value_of(log: Log, key: str, mapping: Mapping) -> Any:
    """Read method, seed or test set of a run; None if it has none."""
    kind, _, name = (mapping[key] or "").partition(":")
    if kind == "path" or (kind == "name" and key == "seed"):
        try:
            found = re.search(name, str(log.path)) if name else SEED.search(log.name)
        except re.error as error:
            raise ValueError(f"{key}={mapping[key]}: is no regular expression: {error}") from error
        return found[1] if found and found.re.groups else None
    if kind == "name":
        return SEED.sub("", log.name).strip("-_/. ") or "all runs"
    if kind == "config":
        return log.config.get(name)
    if kind == "column":
        return next((row[name] for row in log.rows if row.get(name) is not None), None)
    if kind:
        raise ValueError(f"{key}={kind}: must be name, config:KEY, column:NAME or path:REGEX")
    return None
