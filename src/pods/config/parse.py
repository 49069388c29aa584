"""Parse plain nested values into a typed `Config`; an error is one line that names its key.

msgspec checks each value by the type of its key; here is what a user reads of it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec

from pods.config.key import OPERATIONAL
from pods.config.schema import CONF, Config
from pods.system.console import printable

OTHER_NAMES = {
    "batch_size": "prompts_per_step",
    "beta": "update.kl_beta",
    "clip_range": "update.clip_low",
    "clip_ratio": "update.clip_low",
    "cliprange": "update.clip_low",
    "entropy_coeff": "update.entropy_beta",
    "epsilon": "update.clip_low",
    "epsilon_high": "update.clip_high",
    "kl": "update.kl_beta",
    "kl_coef": "update.kl_beta",
    "kl_loss_coef": "update.kl_beta",
    "learning_rate": "update.lr",
    "lora_r": "model.lora.r",
    "lora_rank": "model.lora.r",
    "loss_type": "update.aggregation",
    "max_new_tokens": "sampling.max_completion_tokens",
    "num_generations": "nm.n",
    "num_iterations": "update.epochs",
    "per_device_train_batch_size": "prompts_per_step",
    "ppo_epochs": "update.epochs",
    "response_length": "sampling.max_completion_tokens",
    "scale_rewards": "advantage.scale",
    "train_batch_size": "prompts_per_step",
}
"""What other trainers (TRL, verl) call a key."""
NO_SUCH_KEY = "no such key; see conf/README.md"
LONGEST_VALUE = 80  # characters of a value in a message


class ConfigError(ValueError):
    """A key has a value that is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        """Say `key=value: allowed`; a long value is truncated."""
        text = "null" if value is None else printable(str(value)).replace("\n", r"\n")
        if len(text) > LONGEST_VALUE:
            text = f"{text[:LONGEST_VALUE]}..."
        super().__init__(f"{key}={text}: {allowed}")


@dataclass(frozen=True)
class Key:
    """What the schema says of one key."""

    kind: Any
    """The type of its value, as msgspec reads it."""
    meaning: str
    operational: bool
    """The key is not part of a run's identity, since it does not change what a run computes."""

    def allowed(self) -> str:
        """Say which values the key allows: an integer >= 1, or null."""
        return _allowed(self.kind)

    def takes_list(self) -> bool:
        """Tell whether the value is a list."""
        kind = get_args(self.kind)[0]
        options = [kind, *get_args(kind)]  # of a list, or of a list or null
        return any(get_origin(option) is list for option in options)

    def read(self, name: str, value: Any) -> Any:
        """Return a value as the key's type; `ConfigError`: it is not allowed, and has this name."""
        try:
            return msgspec.convert(value, self.kind)
        except msgspec.ValidationError as error:
            raise ConfigError(name, value, f"must be {self.allowed()}") from error


@cache
def all_keys(cls: Any = Config, prefix: str = "") -> Mapping[str, Key]:
    """Map the dotted name of every key to what the schema says of it."""
    keys: dict[str, Key] = {}
    for field in fields(cls):
        name = prefix + field.name
        kind: Any = field.type
        if is_dataclass(kind):
            keys |= all_keys(kind, f"{name}.")  # type: ignore[arg-type]
        else:
            said = kind.__metadata__[-1]  # `key` or `operational`
            keys[name] = Key(kind, said.description, operational=said.extra == OPERATIONAL)
    return keys


def parse(values: Mapping[str, Any]) -> Config:
    """Make a config from plain nested values; `checks.py` says which keys fit together.

    Raises:
        ConfigError: a key is unknown or missing, or its value has a wrong type or is out of bounds.
    """
    config: Config = _section(Config, values, "")
    return config


def read_value(name: str, value: Any) -> Any:
    """Return the value of a key as its type; a single text of a list is a list of one.

    Raises:
        ConfigError: the value is not allowed.
    """
    key = all_keys()[name]
    if isinstance(value, str) and key.takes_list():
        value = [value]
    return key.read(name, value)


def _section(cls: Any, values: Any, prefix: str) -> Any:
    """Make a section of the config, whose keys begin with this prefix."""
    if not isinstance(values, Mapping):
        raise ConfigError(prefix.rstrip("."), values, "must be a group of keys")
    kinds = {field.name: field.type for field in fields(cls)}
    for name, value in values.items():
        if name not in kinds:
            raise ConfigError(f"{prefix}{name}", value, unknown_key(f"{prefix}{name}"))

    parsed = {}
    for name, kind in kinds.items():
        if name not in values:
            raise ConfigError(prefix + name, "", "missing")
        if is_dataclass(kind):
            parsed[name] = _section(kind, values[name], f"{prefix}{name}.")
        else:
            parsed[name] = read_value(prefix + name, values[name])
    return cls(**parsed)


def _allowed(kind: Any) -> str:
    """Say which values a type has, by its title."""
    for said in getattr(kind, "__metadata__", ()):
        if said.title is not None:
            return str(said.title)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"

    inner = get_args(kind)[0]  # of a list, of a value or null, or of what a key says
    text = _allowed(inner)
    return f"{text}, or null" if type(None) in get_args(kind) else text


def unknown_key(name: str) -> str:
    """Say that a key does not exist, and which keys do or may have been meant."""
    group, _, last = name.rpartition(".")
    siblings = [key.removeprefix(f"{group}.") for key in all_keys() if key.startswith(f"{group}.")]
    meant = OTHER_NAMES.get(last) or _similar_key(name, siblings)
    if meant is not None:
        return f"no such key; did you mean {meant}?"
    if siblings:
        return f"no such key; {group} has {', '.join(siblings)}"
    return NO_SUCH_KEY


def _similar_key(name: str, siblings: list[str]) -> str | None:
    """Return the key or group that is most like an unknown one, in its group if there is such."""
    group, _, last = name.rpartition(".")
    if siblings:
        near = difflib.get_close_matches(last, siblings, n=1)
        return f"{group}.{near[0]}" if near else None

    same = [key for key in all_keys() if key.rpartition(".")[2] == last]
    if same:
        return difflib.get_close_matches(name, same, n=1, cutoff=0)[0]
    groups = {folder.name for folder in CONF.iterdir() if folder.is_dir()} - {"prices"}
    near = difflib.get_close_matches(name, [*all_keys(), *groups], n=1)
    return near[0] if near else None
