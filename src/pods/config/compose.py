"""Compose overrides such as `nm.n=32` into a config's plain values with Hydra."""

import difflib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config.checks import OWN_FUNCTIONS as OWN
from pods.config.parse import leaves, unknown_key
from pods.config.schema import CONF
from pods.system.text import RUN

_register = partial(OmegaConf.register_new_resolver, replace=True)
_register("steps_without_time", lambda seconds: 100 if seconds is None else None)
_register("tenth_of", lambda time, steps: None if steps or time is None else time / 10)
_register("importance_at", lambda lag: "token_truncate" if lag else "off")
_register("last", lambda name: f"{name}".rpartition("/")[2])


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose `conf/`, and what the user of `run.py` has added, into plain, nested values.

    `ValueError`: an override is malformed or names nothing; one line, key=value first.
    """
    try:
        within = GlobalHydra.instance().is_initialized()
        with nullcontext() if within else hydra.initialize_config_dir(str(CONF), "app", "1.3"):
            return plain(hydra.compose("config", list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(one_line(error, overrides)) from error


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return the plain values of a config that Hydra composed, without Hydra's own."""
    keys = [str(key) for key in composed if key != "hydra"]
    return dict(OmegaConf.to_container(OmegaConf.masked_copy(composed, keys), resolve=True))  # type: ignore[arg-type]


def one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Shorten a message of Hydra or OmegaConf to key, value and what is allowed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(cause := error.__cause__, OmegaConfBaseException) and cause.full_key:
        key = str(cause.full_key)
        typed = next((each for each in overrides if each.startswith((f"{key}=", f"{key}."))), key)
        return f"{typed}: {unknown_key(typed.partition('=')[0])}"
    if "Could not find '" in lines[0] and "Config search path:" in lines:
        name = lines[0].partition("Could not find ")[2].strip("'")
        group, _, option = name.rpartition("/")
        options = [o for o in lines[1 : lines.index("Config search path:")] if " " not in o]
        near = difflib.get_close_matches(option, options, n=1)
        hint = f"did you mean {near[0]}? It " if near else ""
        own = [f"; {key}={option} is one of your own" for key in OWN if key.startswith(f"{group}.")]
        more = own[0] if own and ":" in option else ""
        return f"{group}={option}: {hint}must be one of {', '.join(options)}{more}"
    if lines[0].startswith(("Ambiguous value", "Sweep parameters")):
        typed = lines[0].split("'")[1]
        if "list" in str(leaves().get(typed.partition("=")[0], [""])[0]):
            return f"{typed}: must be a list: '{typed.replace('=', '=[', 1)}]'"
        return f"{typed}: must be one value; `{RUN} -m` sweeps over several"
    text, _, link = " ".join(lines).partition(" See https")
    if "override_grammar" in link:
        typed = text.split("'")[1] if text.startswith("Error parsing override") else text
        return f"{typed}: must be KEY=VALUE, in quotes where the shell reads it otherwise"
    return text + (f" See https{link}" if link else "")
