"""Find the weights of a model: a given folder, the package, the user's own models, or the hub."""

import os
from pathlib import Path

from pods.config.schema import ModelConfig

SHIPPED_MODELS = Path(__file__).parents[1] / "models"


def pods_home() -> Path:
    """Return the folder that `pods fetch` fills: `PODS_HOME`, or one in the user's cache."""
    given = os.environ.get("PODS_HOME")
    if given:
        return Path(given)
    return Path.home() / ".cache" / "pods"


def weights_source(model: ModelConfig) -> str:
    """Return the folder or the hub's name that a model's whole weights are loaded from.

    In this order: the given folder, the package, what `pods fetch` has fetched, the hub. A given
    folder with an adapter is left out; see `ModelConfig.adapter`.
    """
    if model.path is not None and model.adapter() is None:
        return model.path
    if model.hub is None:
        return str(SHIPPED_MODELS / model.name)

    fetched = pods_home() / "models" / model.name
    if (fetched / "config.json").is_file():
        return str(fetched)
    return model.hub
