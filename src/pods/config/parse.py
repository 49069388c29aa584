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
    **{int: "an integer", float: "a number", str: "a string", bool: "true or false"},
    **{list[float]: "a list of numbers", list[str]: "a list of strings"},
}
USUAL = {
    **dict.fromkeys(("kl_coef", "kl_loss_coef", "kl", "beta"), "update.kl_beta"),
    **{"learning_rate": "update.lr", "loss_type": "update.aggregation", "num_generations": "nm.n"},
    **{f"{each}batch_size": "prompts_per_step" for each in ("", "train_", "per_device_train_")},
    **dict.fromkeys(("epsilon", "clip_range", "cliprange", "clip_ratio"), "update.clip_low"),
    **dict.fromkeys(("num_iterations", "ppo_epochs"), "update.epochs"),
    **{"scale_rewards": "advantage.scale", "entropy_coeff": "update.entropy_beta"},
    **{"epsilon_high": "update.clip_high", "lora_r": "model.lora.r", "lora_rank": "model.lora.r"},
    **dict.fromkeys(("max_new_tokens", "response_length"), "sampling.max_completion_tokens"),
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
            keys[name] = field.type, field.metadata["key"]
        else:
            keys |= leaves(field.type, f"{name}.")  # type: ignore[arg-type]
    return keys


def parse(values: Mapping[str, Any]) -> Config:
    """Make a config from plain nested values; keys at odds with each other are `checks.py`'s.

    `ConfigError`: a key is unknown or missing, or its value has a wrong type or is out of bounds.
    """
    config: Config = _section(Config, values, "")
    return config


def unknown_key(name: str) -> str:
    """Say that a key does not exist, and which keys do or may have been meant."""
    group, _, last = name.rpartition(".")
    siblings = [key.removeprefix(f"{group}.") for key in leaves() if key.startswith(f"{group}.")]
    near = [USUAL[last]] if last in USUAL else []
    if siblings:
        near += [f"{group}.{key}" for key in difflib.get_close_matches(last, siblings, n=1)]
    else:
        near += [known for known in leaves() if known.rpartition(".")[2] == last]
        near += difflib.get_close_matches(name, leaves(), n=1)
    if near:
        return f"no such key; did you mean {near[0]}?"
    return f"no such key; {group} has {', '.join(siblings)}" if siblings else NO_SUCH_KEY


def allowed(hint: Any, key: Key) -> str:
    """Say which values a key allows: must be an integer >= 1, or null."""
    kind = _without_null(hint)
    if get_origin(kind) is Literal:
        text = f"one of {', '.join(get_args(kind))}"
    else:
        text = key.form.description if key.form else TYPE_NAMES[kind]
    if math.isfinite(key.high):
        text += f" from {key.low:g} to {key.high:g}"
    elif math.isfinite(key.low):
        text += f" >= {key.low:g}"
    elif math.isfinite(key.above):
        text += f" > {key.above:g}"
    return f"must be {text}" + (", or null" if kind != hint else "")


def _section(cls: Any, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(prefix.rstrip("."), values, "must be a group of keys")
    known = {field.name: field for field in fields(cls)}
    for name in values:
        if name not in known:
            raise ConfigError(f"{prefix}{name}", values[name], unknown_key(f"{prefix}{name}"))
    for name in known:
        if name not in values:
            raise ConfigError(prefix + name, "", "missing")
    parsed = {name: _value(field, values[name], prefix + name) for name, field in known.items()}
    return cls(**parsed)


def _value(field: Field[Any], value: Any, name: str) -> Any:
    if "key" not in field.metadata:
        return _section(field.type, value, f"{name}.")
    kind, key = _without_null(field.type), field.metadata["key"]
    if value is None and kind != field.type:
        return None
    if kind is float and type(value) is int:
        value = float(value)
    if kind == list[str] and isinstance(value, str):
        value = [value]
    if kind == list[float] and isinstance(value, list):
        value = [float(number) if type(number) is int else number for number in value]
    if not _fits(value, kind, key):
        raise ConfigError(name, value, allowed(field.type, key))
    return value


def _without_null(hint: Any) -> Any:
    """Return `int` for `int | None`, and any other hint as it is."""
    options = [option for option in get_args(hint) if option is not type(None)]
    return options[0] if type(None) in get_args(hint) else hint


def _fits(value: Any, kind: Any, key: Key) -> bool:
    """Tell whether a value has the type, form and bounds of its key."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is list:
        [item] = get_args(kind)
        return isinstance(value, list) and all(_fits(each, item, key) for each in value)
    if type(value) is not kind or printable(str(value)) != str(value):  # control characters
        return False
    if kind is str:
        return key.form is None or re.fullmatch(key.form.pattern, value) is not None
    return bool(-math.inf < value < math.inf and key.low <= value <= key.high and value > key.above)
