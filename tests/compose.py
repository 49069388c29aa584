"""Configs for tests, composed from conf/ as the command line would."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pods.checks import build
from pods.config import Config

ROOT = Path(__file__).parents[1]


def composed(*overrides: str) -> Config:
    """The config that these words on the command line give."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        values = OmegaConf.to_container(compose("config", list(overrides)), resolve=True)
    return build(values)  # type: ignore[arg-type]
