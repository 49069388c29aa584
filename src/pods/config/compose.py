"""Compose overrides such as `nm.n=32` into a config's plain values with Hydra."""

import difflib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config.checks import OWN_FUNCTIONS
from pods.config.labels import label_settings
from pods.config.parse import ConfigError, all_keys, unknown_key
from pods.config.schema import CONF
from pods.system.text import RUN

STEPS = 100  # budget.max_steps, if there is no budget of seconds either


def _steps_without_time(seconds: float | None) -> int | None:
    return STEPS if seconds is None else None


def _tenth_of(seconds: float | None, every_steps: int | None) -> float | None:
    if every_steps or seconds is None:
        return None
    return seconds / 10


def _importance_at(lag: int) -> str:
    return "token_truncate" if lag else "off"


def _last(name: object) -> str:
    return str(name).rpartition("/")[2]


RESOLVERS: dict[str, Callable[..., Any]] = {
    "steps_without_time": _steps_without_time,
    "tenth_of": _tenth_of,
    "importance_at": _importance_at,
    "last": _last,
    "home": os.path.expanduser,
}
"""What `${name:...}` in a file of conf/ calls."""
for resolver, function in RESOLVERS.items():
    OmegaConf.register_new_resolver(resolver, function, replace=True)


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose `conf/`, and what the user of `run.py` has added, into plain, nested values.

    Raises:
        ValueError: an override is malformed or names nothing; one line, key=value first.
    """
    within = GlobalHydra.instance().is_initialized()
    started = nullcontext() if within else hydra.initialize_config_dir(str(CONF), "app", "1.3")
    try:
        with started:
            composed = hydra.compose("config", list(overrides), return_hydra_config=True)
            return plain(composed, composed.hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(one_line(error, overrides)) from error


def plain(composed: DictConfig, about: DictConfig) -> dict[str, Any]:
    """Return the plain values of what Hydra composed, and `label_settings`.

    Args:
        composed: the config.
        about: Hydra's own config, which has the overrides and the chosen options.

    Raises:
        ConfigError: a list of options was given for a group; Hydra would take the last one.
    """
    for override in about.overrides.task:
        group, _, value = override.lstrip("+").partition("=")
        if value.startswith("[") and (CONF / group).is_dir():
            options = value.strip("[]")
            raise ConfigError(group, value, f"must be one; `-m {group}={options}` sweeps")

    keys = [str(key) for key in composed if key != "hydra"]
    values = OmegaConf.to_container(OmegaConf.masked_copy(composed, keys), resolve=True)
    settings = label_settings(composed, about.runtime)
    return {**values, "label_settings": settings}  # type: ignore[dict-item]


def one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Shorten a message of Hydra or OmegaConf to key, value and what is allowed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0]
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return _no_such_key(str(cause.full_key), overrides)
    if "Could not find '" in first and "Config search path:" in lines:
        return _no_such_option(lines)
    if first.startswith(("Ambiguous value", "Sweep parameters")):
        return _several_values(first.split("'")[1])

    text, _, link = " ".join(lines).partition(" See https")
    if "override_grammar" in link:
        typed = text.split("'")[1] if text.startswith("Error parsing override") else text
        return f"{typed}: must be KEY=VALUE, in quotes if the shell would read it otherwise"
    return f"{text} See https{link}" if link else text


def _no_such_key(key: str, overrides: Sequence[str]) -> str:
    typed = key
    for override in overrides:
        if override.startswith((f"{key}=", f"{key}.")):
            typed = override
            break
    return f"{typed}: {unknown_key(typed.partition('=')[0])}"


def _no_such_option(lines: Sequence[str]) -> str:
    """Name the options of a group, from Hydra's list of them."""
    name = lines[0].partition("Could not find ")[2].strip("'")
    group, _, option = name.rpartition("/")
    listed = lines[1 : lines.index("Config search path:")]
    options = [line for line in listed if " " not in line]

    near = difflib.get_close_matches(option, options, n=1)
    hint = f"did you mean {near[0]}? It " if near else ""
    text = f"{group}={option}: {hint}must be one of {', '.join(options)}"

    own_keys = [key for key in OWN_FUNCTIONS if key.startswith(f"{group}.")]
    if own_keys and ":" in option:
        text += f"; {own_keys[0]}={option} is one of your own"
    return text


def _several_values(typed: str) -> str:
    key, _, values = typed.partition("=")
    known = all_keys().get(key)
    if known is not None and known.takes_list():
        return f"{typed}: must be a list: '{key}=[{values}]'"
    return f"{typed}: must be one value; `{RUN} -m` sweeps over several"
