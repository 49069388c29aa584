"""Tell runs apart: an identity holds everything that can change what a run computes."""

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from pods.config.checks import OWN_FUNCTIONS, own_functions
from pods.config.parse import all_keys
from pods.config.schema import Config
from pods.runs.files import digest
from pods.runs.paths import weights_source
from pods.system.imports import import_function

LOCATIONS = (
    "task.path",
    "task.test_path",
    "task.system",
    "model.path",
    "model.hub",
)
"""Keys of data, prompt and weights: they count by content, not by where they lie."""
SOURCES = {key: f"{key.rpartition('.')[2]} source" for key in OWN_FUNCTIONS}
"""Keys that name a user's functions, and the key of the hash of the file that defines them."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
"""Endings of the files of a model and its tokenizer; its code is never run."""
NOTHING = "nothing"  # stands for a key that one of two identities lacks


def identity(config: Config) -> dict[str, Any]:
    """Return everything that can change what a run computes: science keys, data, weights, rule.

    Data, weights and a system message in files count by their bytes, those of a hub by their name.
    """
    content: dict[str, Any] = identity_keys(config)
    files = config.task.files().values()
    if any(files):
        content["data"] = [file and digest(file) for file in files]  # train, test
    if config.task.system is not None:
        content["system message"] = digest(Path(config.task.system))

    source = Path(weights_source(config.model))
    content["weights"] = _digests(source) if source.is_dir() else str(source)
    adapter = config.model.adapter()
    if adapter is not None:
        content["adapter"] = _digests(adapter)

    for key, name in own_functions(config):  # by their files; rewards of one key are joined
        source_key = SOURCES[key]
        function_digest = digest(_source_file(name))
        if source_key in content:
            function_digest = f"{content[source_key]}+{function_digest}"
        content[source_key] = function_digest
    return content


def _digests(folder: Path) -> list[str]:
    return [digest(path) for path in sorted(folder.glob("*")) if path.suffix in MODEL_FILES]


def _source_file(name: str) -> Path:
    """Return the file that defines a user's function `module:function`."""
    function = inspect.unwrap(import_function(name))
    module_name = getattr(function, "__module__", None) or name.partition(":")[0]
    return Path(inspect.getsourcefile(sys.modules[module_name]) or "")


def identity_keys(config: Config) -> dict[str, Any]:
    """Return the science keys of a config, dotted, without the locations of data and weights."""
    return dict(zip(_names(), attrgetter(*_names())(config), strict=True))


@cache
def _names() -> list[str]:
    names = []
    for name, key in all_keys().items():
        if not key.operational and name not in LOCATIONS:
            names.append(name)
    return names


def edits(config: Config, frozen: Mapping[str, Any]) -> list[str]:
    """List in which science keys a frozen config's plain values differ from a config."""
    values = {name: _value(frozen, name) for name in _names()}
    return difference(identity_keys(config), values)


def _value(frozen: Mapping[str, Any], name: str) -> Any:
    value: Any = frozen
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return NOTHING
        value = value.get(part, NOTHING)
    return value


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each key that differs.

    >>> difference({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ['b: 2 -> 3', 'c: nothing -> 4']
    """
    lines = []
    for name in dict.fromkeys([*before, *after]):
        old = before.get(name, NOTHING)
        new = after.get(name, NOTHING)
        if old != new:
            lines.append(f"{name}: {old} -> {new}")
    return lines


def fingerprint(content: Mapping[str, Any]) -> str:
    """Return ten hex digits of an identity's hash."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def run_folder(config: Config, content: Mapping[str, Any]) -> Path:
    """Return the run's folder, named from resolved values: study/model-task/rule-n-m/seed-hash."""
    rule = config.sampler.rule.replace(":", "-")
    return Path(
        config.runs_dir,
        config.study,
        f"{config.model.name}-{config.task.label()}",
        f"{rule}-n{config.nm.n}-m{config.nm.m}",
        f"seed{config.seed}-{fingerprint(content)}",
    )
