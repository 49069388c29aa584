"""Configs for tests, composed from conf/ as the command line would."""

import copy
import functools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository

from pods import compose
from pods.checks import build
from pods.config import Config

ROOT = Path(__file__).parents[1]
_once = functools.cache(compose.compose)  # Hydra takes 0.2 s, and most tests say the same words


_load = ConfigRepository.load_config
_files: dict[Any, bytes] = {}


def _load_once(repository: ConfigRepository, config_path: str) -> Any:
    """Read a file of conf/ once: it is a quarter of what Hydra takes; each gets its own copy."""
    key = config_path, *((source.provider, source.path) for source in repository.sources)
    if key not in _files:
        _files[key] = pickle.dumps(_load(repository, config_path))
    return pickle.loads(_files[key])


ConfigRepository.load_config = _load_once


def compose_once(words: Sequence[str]) -> dict[str, Any]:
    """What `pods.compose.compose` gives, composed the first time these words come."""
    return copy.deepcopy(_once(tuple(words)))


def composed(*overrides: str) -> Config:
    """The config that these words on the command line give."""
    words = [word for word in overrides if not word.startswith("runs_dir=")]
    values = compose_once(words)
    for word in overrides:  # another folder in every test; nothing in conf/ refers to it
        if word not in words:
            values["runs_dir"] = word.removeprefix("runs_dir=")
    return build(values)
