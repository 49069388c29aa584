"""Words such as `nm.n=32` to a config's plain values, by Hydra; its errors cut to one line."""

from collections.abc import Sequence
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config import CONF
from pods.validate import unknown_key

EXTRAS = {"pods_slurm": "slurm", "pods_ray": "ray"}
"""Launchers that are there where an extra is installed."""


def compose(words: Sequence[str]) -> dict[str, Any]:
    """Compose `conf/` with overrides, as `run.py` would; nested plain values, interpolated.

    Raises:
        ValueError: a word is none, or names what does not exist: one line, key=value first.
    """
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            found = OmegaConf.to_container(hydra.compose("config", list(words)), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(one_line(error, words)) from error
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def one_line(error: Exception, words: Sequence[str]) -> str:
    """Hydra's and OmegaConf's messages, cut to key, value and what is allowed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        key = str(cause.full_key)
        typed = next((word for word in words if word.startswith(f"{key}=")), key)
        return f"{typed}: {unknown_key(key)}"
    if "Could not find '" in lines[0] and "Config search path:" in lines:
        wanted = lines[0].partition("Could not find ")[2].strip("'")
        group, _, option = wanted.rpartition("/")
        if group == "hydra/launcher" and option in EXTRAS:
            extra = EXTRAS[option]
            return f"launch={extra}: pip install 'pods-rl[{extra}]'"
        options = [o for o in lines[1 : lines.index("Config search path:")] if " " not in o]
        return f"{group}={option}: must be one of {', '.join(options)}"
    if lines[0].startswith(("Ambiguous value", "Sweep parameters")):
        return f"{lines[0].split(chr(39))[1]}: several values; `run.py -m` sweeps over them"
    return " ".join(lines)
