"""Compose overrides such as `nm.n=32` into a config's plain values with Hydra."""

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from pods.config.checks import OWN_FUNCTIONS
from pods.config.labels import label_settings
from pods.config.parse import ConfigError, all_keys, unknown_key
from pods.config.schema import CONF
from pods.system.text import RUN

NO_OPTION = re.compile(r"\[[^]]*\]|null|true|false|[-+.0-9]+", re.IGNORECASE)
STEPS = 100  # between evaluation points, if there is no budget of seconds


def _steps_without_time(seconds: object) -> int | None:
    return STEPS if seconds is None else None


def _by_time(seconds: object, every_steps: int | None, value: float) -> float | None:
    return None if every_steps or seconds is None else value


def _importance_at(lag: object) -> str:
    return "token_truncate" if lag else "off"


def _a_quarter_more(count: object) -> object:
    return math.ceil(1.25 * count) if isinstance(count, int) else count


def _last(name: object) -> str:
    return str(name).rpartition("/")[2]


def _home(path: object) -> str:
    return os.path.expanduser(str(path))


RESOLVERS: dict[str, Callable[..., Any]] = {
    "steps_without_time": _steps_without_time,
    "by_time": _by_time,
    "importance_at": _importance_at,
    "a_quarter_more": _a_quarter_more,
    "last": _last,
    "home": _home,
}
"""What `${name:...}` in a file of conf/ calls. None fails: what is wrong is said of the key."""
for resolver, function in RESOLVERS.items():
    OmegaConf.register_new_resolver(resolver, function, replace=True)


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose `conf/`, and what the user of `run.py` has added, into plain, nested values.

    Raises:
        ValueError: an override is malformed or names nothing; one line, key=value first.
    """
    check_groups(overrides)
    within = GlobalHydra.instance().is_initialized()
    started = nullcontext() if within else hydra.initialize_config_dir(str(CONF), "app", "1.3")
    try:
        with started:
            composed = hydra.compose("config", list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(one_line(error, overrides)) from error
    return plain(composed, overrides, composed.hydra.runtime)


def check_groups(overrides: Iterable[str]) -> None:
    """Refuse what a group may not be, as a `ConfigError`: a list of options, a number or null.

    Hydra would take the last option of a list, and does not say which group has the others.
    """
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if NO_OPTION.fullmatch(value) is None or not (CONF / group).is_dir():
            continue
        options = value.strip("[]")
        if options != value and options:
            raise ConfigError(group, value, f"must be one; `-m {group}={options}` sweeps")
        names = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
        raise ConfigError(group, value, f"must be one of {', '.join(names)}")


def plain(composed: DictConfig, overrides: Sequence[str], runtime: DictConfig) -> dict[str, Any]:
    """Return the plain values of what Hydra composed from these overrides, and `label_settings`.

    Args:
        composed: the config.
        overrides: as typed.
        runtime: `hydra.runtime`, which has the chosen options and the folders that they are in.

    Raises:
        ValueError: a `${...}` has no value.
    """
    keys = [str(key) for key in composed if key != "hydra"]
    try:
        values = OmegaConf.to_container(OmegaConf.masked_copy(composed, keys), resolve=True)
        settings = label_settings(composed, runtime)
    except OmegaConfBaseException as error:
        raise ValueError(one_line(error, overrides)) from error
    return {**values, "label_settings": settings}  # type: ignore[dict-item]


def one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Shorten an error of Hydra or OmegaConf to key, value and what is allowed."""
    cause = error.__cause__
    if isinstance(error, InterpolationResolutionError):
        return _no_value(error, overrides)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return _no_such_option(str(error.missing_cfg_file), error.options)
    if isinstance(error, OverrideParseException):
        return _malformed(error.override)
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return _no_such_key(str(cause.full_key), overrides)

    text = " ".join(str(error).split())
    if text.startswith("Could not override"):  # a folder of conf/ that is no group of a run
        return _no_such_key(text.split("'")[1], overrides)
    if text.startswith(("Ambiguous value", "Sweep parameters")):
        text = _several_values(text.split("'")[1])
    elif text.startswith("Multiple values for "):
        added = [override for override in overrides if override.startswith("+")]
        text = f"{' '.join(added)}: must be without +, since each group has an option already"
    elif "INTERVAL_SWEEP" in text:
        typed = next((override for override in overrides if "interval(" in override), text)
        text = f"{typed}: must list its values: {typed.partition('=')[0]}=1,2"
    return text


def _no_value(error: InterpolationResolutionError, overrides: Iterable[str]) -> str:
    """Name the override whose `${...}` has no value, or the key of a file of conf/."""
    key = str(error.full_key)
    words = [override.replace("\\", "") for override in overrides]  # as typed: Hydra escapes them
    typed = [word for word in words if "${" in word]
    of_key = [word for word in typed if word.startswith(f"{key}=")]
    named = [*of_key, *typed, key]

    line = str(error).partition("\n")[0]
    reason = line.rpartition("while resolving interpolation: ")[2]
    return f"{named[0]}: {reason.strip(chr(34))}"


def _malformed(typed: str) -> str:
    text = f"{typed}: must be KEY=VALUE, in quotes if the shell would read it otherwise"
    return f"{text}; no space may follow a comma" if typed.endswith(",") else text


def _no_such_key(key: str, overrides: Iterable[str]) -> str:
    typed = key
    for override in overrides:
        if override.startswith((f"{key}=", f"{key}.")):
            typed = override
            break
    return f"{typed}: {unknown_key(typed.partition('=')[0])}"


def _no_such_option(name: str, options: Sequence[str]) -> str:
    """Name the options of a group that lacks the one in `name`, group/option."""
    group, _, option = name.rpartition("/")
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
