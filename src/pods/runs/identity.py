"""Tell runs apart: an identity holds everything that can change what a run computes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from pods.config.checks import OWN_FUNCTIONS, reward_terms
from pods.config.clock_model import read_clock_model
from pods.config.parse import leaves
from pods.config.schema import Config
from pods.runs.files import sha256
from pods.runs.paths import adapter_source, weights_source
from pods.runs.rule_source import rule_source

LOCATIONS = (
    *("task.path", "task.test_path", "task.system", "model.path", "model.hub"),
    *("budget.clock", "budget.clock_model"),
)
"""Keys of data, prompt, weights and prices, which count by their content and not by where they lie.
"""
RULE_SOURCE = "rule source"
"""Key of the hash of a rule of one's own; built-in rules have none."""
SOURCES = {
    "sampler.rule": RULE_SOURCE,
    "task.reward": "reward source",
    "task.make": "task source",
    "prompts.selector": "selector source",
    "nm.chooser": "chooser source",
    "nm.allocation": "allocation source",
}
"""Keys that name functions of one's own, and the key of the hash of those."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")  # and tokenizers
VERSION = 3  # increase it when a key's meaning changes, so that old runs are not taken for new ones


def identity(config: Config) -> dict[str, Any]:
    """Return everything that can change what a run computes: science keys, data, weights, rule.

    Data, weights and a system message in files count by their bytes, those of a hub by their name.
    """
    content: dict[str, Any] = {"version": VERSION, **identity_keys(config)}
    files = config.task.files().values()
    if any(files):
        content["data"] = [file and digest(file) for file in files]  # train, test
    if config.task.system is not None:
        content["system message"] = digest(Path(config.task.system))
    if config.budget.clock_model is not None:
        content["clock model"] = read_clock_model(config.budget.clock_model).prices()
    source = Path(weights_source(config.model))
    content["weights"] = _digests(source) if source.is_dir() else str(source)
    adapter = adapter_source(config.model)
    if adapter is not None:
        content["adapter"] = _digests(adapter)
    for name, functions in _own_functions(config).items():
        if functions:
            content[name] = "+".join(map(rule_source, functions))
    return content


def _digests(folder: Path) -> list[str]:
    """Return the SHA-256 of each file of a model."""
    parts = sorted(path for path in folder.glob("*") if path.suffix in MODEL_FILES)
    return [digest(part) for part in parts]


def _own_functions(config: Config) -> dict[str, list[str]]:
    """Return the functions of one's own that a config names, by the key of their hash."""
    named = {key: [attrgetter(key)(config)] for key in OWN_FUNCTIONS}
    named["task.reward"] = [term.name for term in reward_terms(config.task)]
    return {
        source: [name for name in named[key] if ":" in (name or "")]
        for key, source in SOURCES.items()
    }


def science_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the science keys of a config's plain values, dotted; missing keys stay missing."""
    keys = {}
    for name, (_, key) in leaves().items():
        value: Any = values
        for part in name.split("."):
            value = value.get(part, ...) if isinstance(value, Mapping) else ...
        if not key.operational and value is not ...:
            keys[name] = value
    return keys


def identity_keys(config: Config) -> dict[str, Any]:
    """Return the science keys of a config, dotted, without the locations of data and weights."""
    names, values = _identity_keys()
    return dict(zip(names, values(config), strict=True))


@cache
def _identity_keys() -> tuple[list[str], Callable[[Config], tuple[Any, ...]]]:
    names = [name for name, (_, key) in leaves().items() if not key.operational]
    names = [name for name in names if name not in LOCATIONS]
    return names, attrgetter(*names)


def edits(config: Config, frozen: Mapping[str, Any]) -> list[str]:
    """List in which science keys a frozen config's plain values differ from a config."""
    before = {name: v for name, v in science_keys(frozen).items() if name not in LOCATIONS}
    return difference(identity_keys(config), before)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each key that differs.

    >>> difference({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b: 2 -> 3', 'c: nothing -> 4']
    """
    return [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in {**before, **after}
        if before.get(name, ...) != after.get(name, ...)
    ]


def fingerprint(content: Mapping[str, Any]) -> str:
    """Return ten hex digits of an identity's hash."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def run_folder(config: Config, content: Mapping[str, Any]) -> Path:
    """Return the run's folder, named from resolved values: study/model-task/rule-n-m/seed-hash."""
    rule = config.sampler.rule.replace(":", "-")
    return (
        Path(config.runs_dir)
        / config.study
        / f"{config.model.name}-{config.task.label()}"
        / f"{rule}-n{config.nm.n}-m{config.nm.m}"
        / f"seed{config.seed}-{fingerprint(content)}"
    )


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is read once per process, however many jobs there are."""
    status = path.stat()
    return _cached_sha256(path, status.st_size, status.st_mtime_ns)


@cache
def _cached_sha256(path: Path, size: int, changed: int) -> str:
    return sha256(path)
