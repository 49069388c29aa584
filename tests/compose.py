"""Configs for tests, composed from conf/ as the command line does."""

import copy
import functools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository

from pods.config import compose
from pods.config.checks import validate
from pods.config.schema import Config

ROOT = Path(__file__).parents[1]
_once = functools.cache(compose.compose)  # Hydra takes 0.2 s, and most tests use the same


_load = ConfigRepository.load_config
_files: dict[Any, bytes] = {}


def _load_once(repository: ConfigRepository, config_path: str) -> Any:
    """Read a file of conf/ once, which is a quarter of Hydra's time; return a new copy."""
    key = config_path, *((source.provider, source.path) for source in repository.sources)
    if key not in _files:
        _files[key] = pickle.dumps(_load(repository, config_path))
    return pickle.loads(_files[key])


ConfigRepository.load_config = _load_once


def compose_once(overrides: Sequence[str]) -> dict[str, Any]:
    """Return `pods.config.compose.compose(overrides)`, composed only the first time."""
    return copy.deepcopy(_once(tuple(overrides)))


def composed(*overrides: str) -> Config:
    """Return the config that these overrides give on the command line."""
    values = compose_once([each for each in overrides if not each.startswith("runs_dir=")])
    for override in overrides:  # a different folder in every test; nothing in conf/ refers to it
        if override.startswith("runs_dir="):
            values["runs_dir"] = override.removeprefix("runs_dir=")
    return validate(values)
