"""Which run a config is: a hash of everything that can change what it computes."""

import dataclasses
import hashlib
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from pods.config import Config
from pods.runs.files import sha256
from pods.runs.home import weights
from pods.validate import leaves

PLACES = ("task.path", "task.test_path", "model.path", "model.hub")
"""What lies there counts, by its bytes."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")  # and tokenizers
VERSION = 3  # raise it when a key's meaning changes, so that old runs are not taken for new ones


def science(config: Config) -> dict[str, Any]:
    """The config's science keys, dotted, with their values."""
    return pick(dataclasses.asdict(config))


def pick(values: Mapping[str, Any]) -> dict[str, Any]:
    """The science keys of a config's plain values, dotted; what is missing stays missing."""
    found = {}
    for name, (_, key) in leaves().items():
        value: Any = values
        for part in name.split("."):
            value = value.get(part, ...) if isinstance(value, Mapping) else ...
        if not key.operational and value is not ...:
            found[name] = value
    return found


def identity(config: Config) -> dict[str, Any]:
    """Everything that can change what a run computes: science keys, data, weights, rule.

    Data and weights in a folder count by their bytes, not their place; a hub's by their name.
    """
    content: dict[str, Any] = {"version": VERSION, **settled(dataclasses.asdict(config))}
    files = config.task.files().values()
    if any(files):
        content["data"] = [file and digest(file) for file in files]  # train, test
    source = Path(weights(config.model))
    parts = sorted(path for path in source.glob("*") if path.suffix in MODEL_FILES)
    content["weights"] = [digest(part) for part in parts] if source.is_dir() else str(source)
    if ":" in config.sampler.rule:
        module = importlib.import_module(config.sampler.rule.partition(":")[0])
        content["rule source"] = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    return content


def settled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those science keys of plain values that say what is computed, not where it lies."""
    return {name: value for name, value in pick(values).items() if name not in PLACES}


def settled_of(config: Config) -> dict[str, Any]:
    """The same of a config, of whose values it makes no copy: a study has thousands."""
    names, values = _settled()
    return dict(zip(names, values(config), strict=True))


@cache
def _settled() -> tuple[list[str], Callable[[Config], tuple[Any, ...]]]:
    names = [name for name, (_, key) in leaves().items() if not key.operational]
    names = [name for name in names if name not in PLACES]
    return names, attrgetter(*names)


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each key that is not the same in both.

    >>> difference({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b: 2 -> 3', 'c: nothing -> 4']
    """
    return [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in {**before, **after}
        if before.get(name, ...) != after.get(name, ...)
    ]


def fingerprint(content: dict[str, Any]) -> str:
    """Ten hex digits of an identity."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def run_folder(config: Config, content: dict[str, Any]) -> Path:
    """Where the run lives, named from resolved values: study/model-task/rule-n-m/seed-hash."""
    rule = config.sampler.rule.replace(":", "-")
    return (
        Path(config.runs_dir)
        / config.study
        / f"{config.model.name}-{config.task.name}"
        / f"{rule}-n{config.nm.n}-m{config.nm.m}"
        / f"seed{config.seed}-{fingerprint(content)}"
    )


def digest(path: Path) -> str:
    """SHA-256 of a file; read once a process, however many jobs a sweep has."""
    status = path.stat()
    return _cached_sha256(path, status.st_size, status.st_mtime_ns)


@cache
def _cached_sha256(path: Path, size: int, changed: int) -> str:
    return sha256(path)
