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
from pods.config.clock_model import read_clock_model
from pods.config.inputs import gguf_parts
from pods.config.parse import leaves
from pods.config.schema import Config
from pods.runs.files import digest
from pods.runs.paths import weights_source
from pods.system.imports import import_function

LOCATIONS = (
    *("task.path", "task.test_path", "task.system"),
    *("model.path", "model.hub", "budget.clock_model"),
)
"""Keys of data, prompt, weights and prices: they count by content, not by where they lie."""
SOURCES = {key: f"{key.rpartition('.')[2]} source" for key in OWN_FUNCTIONS}
"""Keys that name functions of one's own, and the key of the hash of the file that defines them."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
"""Endings of the files of a model and its tokenizer; its code is never run."""


def identity(config: Config) -> dict[str, Any]:
    """Return everything that can change what a run computes: science keys, data, weights, rule.

    Data, weights and a system message in files count by their bytes, those of a hub by their name.
    """
    content: dict[str, Any] = identity_keys(config)
    if any(files := config.task.files().values()):
        content["data"] = [file and digest(file) for file in files]  # train, test
    if config.task.system is not None:
        content["system message"] = digest(Path(config.task.system))
    if config.budget.clock_model is not None:
        content["clock model"] = read_clock_model(config.budget.clock_model).prices()
    source, gguf = Path(weights_source(config.model)), gguf_parts(config.model.path)
    content["weights"] = _digests(source) if source.is_dir() else str(source)
    if gguf:  # what it is converted into also names the version of transformers
        content["weights"] = [digest(*gguf)]
    if (adapter := config.model.adapter()) is not None:
        content["adapter"] = _digests(adapter)
    for key, name in own_functions(config):  # by their files; rewards of one key are joined
        function = inspect.unwrap(import_function(name))
        module = sys.modules[getattr(function, "__module__", None) or name.partition(":")[0]]
        hashes = [content.get(SOURCES[key]), digest(Path(inspect.getsourcefile(module) or ""))]
        content[SOURCES[key]] = "+".join(filter(None, hashes))
    return content


def _digests(folder: Path) -> list[str]:
    return [digest(path) for path in sorted(folder.glob("*")) if path.suffix in MODEL_FILES]


def identity_keys(config: Config) -> dict[str, Any]:
    """Return the science keys of a config, dotted, without the locations of data and weights."""
    return dict(zip(_names(), attrgetter(*_names())(config), strict=True))


@cache
def _names() -> list[str]:
    return [k for k, (_, key) in leaves().items() if not key.operational and k not in LOCATIONS]


def edits(config: Config, frozen: Mapping[str, Any]) -> list[str]:
    """List in which science keys a frozen config's plain values differ from a config."""

    def value(name: str) -> Any:
        found: Any = frozen
        for part in name.split("."):
            found = found.get(part, "nothing") if isinstance(found, Mapping) else "nothing"
        return found

    return difference(identity_keys(config), {name: value(name) for name in _names()})


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
    model, rule = config.model.name, config.sampler.rule.replace(":", "-")
    names = (f"{model}-{config.task.label()}", f"{rule}-n{config.nm.n}-m{config.nm.m}")
    return Path(config.runs_dir, config.study, *names, f"seed{config.seed}-{fingerprint(content)}")
