"""Configs for tests, composed from conf/ as the command line would."""

from pathlib import Path

from pods import compose
from pods.checks import build
from pods.config import Config

ROOT = Path(__file__).parents[1]


def composed(*overrides: str) -> Config:
    """The config that these words on the command line give."""
    return build(compose.compose(overrides))
