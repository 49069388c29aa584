"""Name the curves of a study: arm or rule, n and m, and whatever else differs between its runs."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from pods.config.schema import CONF, Config
from pods.runs.identity import SOURCES

LABEL_KEYS = ("sampler.rule", "nm.n", "nm.m")  # every series' name contains them anyway
ARM_KEYS = (
    *("advantage.baseline", "advantage.scale"),
    *("group_filter.adaptive", "group_filter.metric", "group_filter.name"),
    *("nm.allocation", "nm.chooser", "nm.every_steps", "nm.groups", "nm.menu", "nm.round"),
    *("prompts.selector", "update.aggregation"),
    *("update.logprob_temperature", "update.optimizer", "update.warmup_from_zero"),
)
"""Keys that an arm may set. The arm's label implies them where they are as in the arm's file."""
SYSTEM = "system message"  # of the identity: the hash of task.system
SEPARATOR = ", "
LONGEST = 40  # characters of a value


def series_names(runs: Sequence[tuple[Config, Mapping[str, Any]]]) -> list[str]:
    """Name the curve of each run, given its config and its identity (without the seed).

    Runs share a curve only if everything in their identity is equal. An arm is merely a label: the
    label of one run serves for all runs of its curve.
    """
    keys = [json.dumps(identity, sort_keys=True) for _, identity in runs]
    arms = {key: config.arm for key, (config, _) in zip(keys, runs, strict=True) if config.arm}
    curves = dict(zip(keys, runs, strict=True))
    labels = {key: label(config, arms.get(key)) for key, (config, _) in curves.items()}
    hidden = {*LABEL_KEYS, *SOURCES.values(), *_told_by_reproduction(list(curves.values()))}
    varying = [k for k in differing([i for _, i in curves.values()]) if k not in hidden]
    names = {}
    for key, (_, identity) in curves.items():
        same_label = [
            identity for other, (_, identity) in curves.items() if labels[other] == labels[key]
        ]
        implied = _implied(arms[key]) if key in arms and {*varying} & {*ARM_KEYS} else {}
        telling = {
            k
            for k in varying
            if k not in implied or resolved(implied[k], identity) != identity.get(k)
        }
        shown = telling | {*differing(same_label)}
        shown -= {
            source
            for of, source in SOURCES.items()
            if of in shown and not _edited(same_label, of, source)
        }
        parts = [f"{k}={_short(identity.get(k), k)}" for k in sorted(shown)]
        names[key] = SEPARATOR.join([labels[key], *parts])
    return [names[key] for key in keys]


def _edited(identities: Sequence[Mapping[str, Any]], key: str, source: str) -> bool:
    """Return whether there are two sources of one function of a user."""
    sources = {(str(identity.get(key)), identity.get(source)) for identity in identities}
    return len(sources) > len({name for name, _ in sources})


def resolved(value: object, identity: Mapping[str, Any]) -> object:
    """Return a value of an arm's file, or of the key that it refers to, such as ${nm.m}."""
    refers = isinstance(value, str) and value.startswith("${")
    return identity.get(str(value)[2:-1]) if refers else value


def _told_by_reproduction(curves: Sequence[tuple[Config, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the keys that differ because `reproduction` does, as the curves' labels say.

    Curves with the same label agree on such a key, and in `faithful` ones it is as in its files.
    """
    modes = {config.reproduction for config, _ in curves}
    for key, values in _reproduced().items() if len(modes) > 1 else ():
        found = {(config.reproduction, str(identity.get(key))) for config, identity in curves}
        faithful = {value for mode, value in found if mode != "ours"}
        if len(found) == len(modes) and (faithful <= values or key == SYSTEM):
            yield key


@cache
def _reproduced() -> dict[str, set[str]]:
    """Return the values that each key has in the files of `reproduction`."""
    values: dict[str, set[str]] = {SYSTEM: set()}
    for path in (CONF / "reproduction/settings").glob("*.yaml"):
        for group, keys in yaml.safe_load(path.read_text()).items():
            for key, value in keys.items() if isinstance(keys, dict) else ():
                values.setdefault(f"{group}.{key}", set()).add(str(value))
    return values


@cache
def _implied(arm: str) -> dict[str, Any]:
    """Return the values of `ARM_KEYS` with only `arm=` given; nothing if there is no such arm.

    They are read from `conf/` as Hydra would compose them (the main file, the options that the arm
    overrides, the arm's own values), because Hydra is slow and cannot be called during a sweep.
    """
    own = _yaml(f"arm/{arm}") if re.fullmatch(r"\w{1,99}", arm) else {}
    if not own:
        return {}
    options = {"prompts": "uniform", "group_filter": "none"}
    for override in own.get("defaults", []):
        if isinstance(override, dict):  # not `_self_`
            options |= {key.removeprefix("override /"): option for key, option in override.items()}
    chosen = {group: _yaml(f"{group}/{options[group]}") for group in ("prompts", "group_filter")}
    values = {}
    for part in (_yaml("config"), chosen, own):
        for group, name in (key.split(".") for key in ARM_KEYS):
            if name in part.get(group, {}):
                values[f"{group}.{name}"] = part[group][name]
    return values


def _yaml(name: str) -> dict[str, Any]:
    path = CONF / f"{name}.yaml"
    return dict(yaml.safe_load(path.read_text())) if path.is_file() else {}


def _short(value: object, key: str) -> str:
    """Show a value, or its beginning and a hash, so that two different ones have two names."""
    text = str(value)[:8] if key in SOURCES.values() else str(value)
    if key == "task.reward":
        text = "+".join(value) if isinstance(value, list) else "built-in"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 12]}…#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def label(config: Config, arm: str | None) -> str:
    """Return the short name of a curve, which other differing keys may follow."""
    mode = "" if config.reproduction == "ours" else f" {config.reproduction}"
    return f"{arm or config.arm_name()}{mode} {config.nm.label()}"


def differing(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the keys that are not equal in all identities."""
    names = {name for identity in identities for name in identity}
    return sorted(n for n in names if len({str(i.get(n)) for i in identities}) > 1)


def rule_of(config: Config) -> str:
    """Return the down-sampling rule; `all` where n = m, whatever rule keeps everything."""
    return "all" if config.nm.n == config.nm.m else config.sampler.rule
