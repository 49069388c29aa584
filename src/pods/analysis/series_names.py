"""Name the curves of a study: arm or rule, n and m, and whatever else differs between its runs."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from pods.config.schema import CONF, Config

LABEL_KEYS = ("sampler.rule", "nm.n", "nm.m")  # every series' name contains them anyway
ARM_KEYS = (
    *("advantage.baseline", "advantage.scale"),
    *("group_filter.adaptive", "group_filter.metric", "group_filter.name"),
    *("nm.groups", "prompts.selector", "update.aggregation"),
)
"""Keys that an arm may set. The arm's label implies them where they are as in the arm's file."""
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
    varying = [k for k in differing([i for _, i in curves.values()]) if k not in LABEL_KEYS]
    names = {}
    for key, (_, identity) in curves.items():
        same_label = [
            identity for other, (_, identity) in curves.items() if labels[other] == labels[key]
        ]
        implied = _implied(arms[key]) if key in arms and {*varying} & {*ARM_KEYS} else {}
        telling = {k for k in varying if k not in implied or implied[k] != identity.get(k)}
        shown = sorted(telling | {*differing(same_label)})
        parts = [f"{k}={_short(identity.get(k))}" for k in shown]
        names[key] = SEPARATOR.join([labels[key], *parts])
    return [names[key] for key in keys]


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


def _short(value: object) -> str:
    """Show a value, or its beginning and a hash, so that two different ones have two names."""
    text = str(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 12]}…#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def label(config: Config, arm: str | None) -> str:
    """Return the short name of a curve, which other differing keys may follow."""
    return f"{arm or config.sampler.rule} {config.nm.n}→{config.nm.m}"


def differing(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the keys that are not equal in all identities."""
    names = {name for identity in identities for name in identity}
    return sorted(n for n in names if len({str(i.get(n)) for i in identities}) > 1)


def rule_of(config: Config) -> str:
    """Return the down-sampling rule; `all` where n = m, whatever rule keeps everything."""
    return "all" if config.nm.n == config.nm.m else config.sampler.rule
