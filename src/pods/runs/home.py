"""Where models are, for all runs of a user."""

import os
from pathlib import Path

from pods.config import ModelConfig

SHIPPED = Path(__file__).parents[1] / "models"


def home() -> Path:
    """Where `pods fetch` leaves things: `PODS_HOME`, or a folder in the user's cache."""
    return Path(os.environ.get("PODS_HOME") or Path.home() / ".cache" / "pods")


def weights(model: ModelConfig) -> str:
    """Where the weights come from: the given folder, the package, `pods fetch`, or the hub."""
    if model.path is not None:
        return model.path
    if model.hub is None:
        return str(SHIPPED / model.name)
    fetched = home() / "models" / model.name
    return str(fetched) if (fetched / "config.json").is_file() else model.hub
