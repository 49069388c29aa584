"""Parse plain nested values into a typed `Config`; an error is one line that names its key."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pods.config.key import Key
from pods.config.schema import Config
from pods.system.console import printable

TYPE_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list[float]: "a list of numbers",
    list[str]: "a list of strings",
}
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
        text = "null" if value is None else printable(str(value))
        if len(text) > LONGEST_VALUE:
            text = f"{text[:LONGEST_VALUE]}..."
        super().__init__(f"{key}={text}: {allowed}")


@cache
def leaves(cls: type = Config, prefix: str = "") -> Mapping[str, tuple[Any, Key]]:
    """Map the dotted name of every key to its type and its `Key`."""
    keys: dict[str, tuple[Any, Key]] = {}
    for field in fields(cls):
        name = prefix + field.name
        if "key" in field.metadata:
            keys[name] = (field.type, field.metadata["key"])
        else:
            keys |= leaves(field.type, f"{name}.")  # type: ignore[arg-type]
    return keys


def parse(values: Mapping[str, Any]) -> Config:
    """Make a config from plain nested values; `checks.py` says which keys fit together.

    Raises:
        ConfigError: a key is unknown or missing, or its value has a wrong type or is out of bounds.
    """
    config: Config = _section(Config, values, "")
    return config


def unknown_key(name: str) -> str:
    """Say that a key does not exist, and which keys do or may have been meant."""
    group, _, last = name.rpartition(".")
    siblings = [key.removeprefix(f"{group}.") for key in leaves() if key.startswith(f"{group}.")]
    meant = OTHER_NAMES.get(last) or _similar_key(name, siblings)
    if meant is not None:
        return f"no such key; did you mean {meant}?"
    if siblings:
        return f"no such key; {group} has {', '.join(siblings)}"
    return NO_SUCH_KEY


def _similar_key(name: str, siblings: list[str]) -> str | None:
    """Return the key that is most like an unknown one, in its group if there is such a group."""
    group, _, last = name.rpartition(".")
    if siblings:
        near = difflib.get_close_matches(last, siblings, n=1)
        return f"{group}.{near[0]}" if near else None

    same_name = [key for key in leaves() if key.rpartition(".")[2] == last]
    near = same_name + difflib.get_close_matches(name, leaves(), n=1)
    return near[0] if near else None


def allowed(hint: Any, key: Key) -> str:
    """Say which values a key allows: must be an integer >= 1, or null."""
    kind = _without_null(hint)
    text = f"must be {_kind(kind, key)}{_bounds(key)}"
    return text if kind == hint else f"{text}, or null"


def _kind(kind: Any, key: Key) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return key.form.description if key.form else TYPE_NAMES[kind]


def _bounds(key: Key) -> str:
    if math.isfinite(key.high):
        return f" from {key.low:g} to {key.high:g}"
    if math.isfinite(key.low):
        return f" >= {key.low:g}"
    if math.isfinite(key.above):
        return f" > {key.above:g}"
    return ""


def _section(cls: Any, values: Any, prefix: str) -> Any:
    """Make a section of the config, whose keys begin with this prefix."""
    if not isinstance(values, Mapping):
        raise ConfigError(prefix.rstrip("."), values, "must be a group of keys")
    known = {field.name: field for field in fields(cls)}
    for name in values:
        if name not in known:
            raise ConfigError(f"{prefix}{name}", values[name], unknown_key(f"{prefix}{name}"))

    parsed = {}
    for name, field in known.items():
        if name not in values:
            raise ConfigError(prefix + name, "", "missing")
        parsed[name] = _value(field, values[name], prefix + name)
    return cls(**parsed)


def _value(field: Field[Any], value: Any, name: str) -> Any:
    """Return the value of a key as its type."""
    if "key" not in field.metadata:
        return _section(field.type, value, f"{name}.")
    kind = _without_null(field.type)
    if value is None and kind != field.type:
        return None

    value = _converted(value, kind)
    if not _fits(value, kind, field.metadata["key"]):
        raise ConfigError(name, value, allowed(field.type, field.metadata["key"]))
    return value


def _converted(value: Any, kind: Any) -> Any:
    """Return 1 as 1.0 if a number is asked for, and a single text as a list of one if a list is."""
    if kind is float and type(value) is int:
        return float(value)
    if kind == list[float] and isinstance(value, list):
        return [_converted(number, float) for number in value]
    if kind == list[str] and isinstance(value, str):
        return [value]
    return value


def _without_null(hint: Any) -> Any:
    """Return `int` for `int | None`, and any other hint as it is."""
    options = get_args(hint)
    if type(None) not in options:
        return hint
    return next(option for option in options if option is not type(None))


def _fits(value: Any, kind: Any, key: Key) -> bool:
    """Tell whether a value has the type, form and bounds of its key."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is list:
        [item] = get_args(kind)
        return isinstance(value, list) and all(_fits(entry, item, key) for entry in value)
    if type(value) is not kind:
        return False
    if kind is str:
        return _has_form(value, key)
    return math.isfinite(value) and key.low <= value <= key.high and value > key.above


def _has_form(text: str, key: Key) -> bool:
    if printable(text) != text:  # control characters
        return False
    return key.form is None or re.fullmatch(key.form.pattern, text) is not None
