"""Configs for tests, composed from conf/ as the command line does."""

import copy
import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pods.config import compose
from pods.config.checks import validate
from pods.config.labels import label_settings
from pods.config.schema import CONF, Config

ROOT = Path(__file__).parents[2]
PARSER = OverridesParser.create()


def tracked(ending: str) -> list[Path]:
    """Return the files of the repository with an ending; of an unpacked archive, none."""
    command = ["git", "ls-files", f"*{ending}"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in listed.stdout.split()]


@functools.cache
def _groups(choices: tuple[str, ...]) -> tuple[DictConfig, DictConfig]:
    """Return what Hydra composes of these choices of groups: 0.2 s, and most tests share them.

    The second is `hydra.runtime`.
    """
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        composed = hydra.compose("config", list(choices), return_hydra_config=True)
        config = OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])
        return config, composed.hydra.runtime


def compose_once(overrides: Sequence[str]) -> dict[str, Any]:
    """Return `pods.config.compose.compose(overrides)`, where Hydra composes the groups once."""
    try:
        choices = [word for word in overrides if (CONF / word.partition("=")[0]).is_dir()]
        shared, runtime = _groups(tuple(choices))
        config = copy.deepcopy(shared)
        values = PARSER.parse_overrides([word for word in overrides if word not in choices])
        assert not any(value.is_sweep_override() for value in values)
        ConfigLoaderImpl._apply_overrides_to_config(values, config)  # as Hydra itself
        config.label_settings = label_settings(config, runtime)
        return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]
    except Exception:
        return compose.compose(overrides)  # says what is wrong


def composed(*overrides: str) -> Config:
    """Return the config that these overrides give on the command line."""
    return validate(compose_once(overrides))
