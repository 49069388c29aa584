"""What a curve is called: arm or rule, n and m, and whatever else differs between the runs."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from pods.config import CONF, Config

NAMED = ("sampler.rule", "nm.n", "nm.m")  # keys that a series' name says anyway
OF_AN_ARM = ("advantage.over", "group_filter.adaptive", "group_filter.metric", "group_filter.name",
             "nm.groups", "prompts.selector")  # fmt: skip
"""Keys that an arm may set: said by its label where they are as the arm's own file has them."""
SEPARATOR = ", "
LONGEST = 40  # characters of a value


def series_names(runs: Sequence[tuple[Config, Mapping[str, Any]]]) -> list[str]:
    """Name the curve of each run, of its config and its identity (the seed apart).

    Runs share a curve only if everything in their identity is equal; an arm is but a label, so
    that of one run serves for all of its curve.
    """
    keys = [json.dumps(identity, sort_keys=True) for _, identity in runs]
    arms = {key: config.arm for key, (config, _) in zip(keys, runs, strict=True) if config.arm}
    groups = dict(zip(keys, runs, strict=True))
    short = {key: label(config, arms.get(key)) for key, (config, _) in groups.items()}
    identities = {key: identity for key, (_, identity) in groups.items()}
    varying = [k for k in differing(list(identities.values())) if k not in NAMED]
    names = {}
    for key, identity in identities.items():
        twins = [identities[other] for other in groups if short[other] == short[key]]
        said = _said(arms[key]) if key in arms and set(varying) & set(OF_AN_ARM) else {}
        telling = [k for k in varying if k not in said or said[k] != identity.get(k)]
        shown = sorted({*telling, *(differing(twins) if len(twins) > 1 else [])})
        parts = [f"{k}={_shown(identity.get(k))}" for k in shown]
        names[key] = SEPARATOR.join([short[key], *parts])
    return [names[key] for key in keys]


@cache
def _said(arm: str) -> dict[str, Any]:
    """What `OF_AN_ARM` are where only `arm=` is given; nothing where there is no such arm.

    Read from `conf/` as Hydra would compose it, which takes its time and cannot be asked during a
    sweep: the main file, the options that the arm overrides, the arm's own values.
    """
    own = _yaml(f"arm/{arm}") if re.fullmatch(r"\w{1,99}", arm) else {}
    if not own:
        return {}
    options = {"prompts": "uniform", "group_filter": "none"}
    for override in own.get("defaults", []):
        if isinstance(override, dict):  # not `_self_`
            options |= {key.removeprefix("override /"): option for key, option in override.items()}
    chosen = {group: _yaml(f"{group}/{options[group]}") for group in ("prompts", "group_filter")}
    found = {}
    for part in (_yaml("config"), chosen, own):
        for group, name in (key.split(".") for key in OF_AN_ARM):
            if name in part.get(group, {}):
                found[f"{group}.{name}"] = part[group][name]
    return found


def _yaml(name: str) -> dict[str, Any]:
    path = CONF / f"{name}.yaml"
    return dict(yaml.safe_load(path.read_text())) if path.is_file() else {}


def _shown(value: object) -> str:
    """A value, or its beginning and a hash: two that differ must not have one name."""
    text = str(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 12]}…#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def label(config: Config, arm: str | None) -> str:
    """The short name of a curve, before whatever else differs."""
    return f"{arm or config.sampler.rule} {config.nm.n}→{config.nm.m}"


def differing(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that are not equal in all of the identities."""
    names = {name for identity in identities for name in identity}
    return sorted(n for n in names if len({str(i.get(n)) for i in identities}) > 1)


def rule_of(config: Config) -> str:
    """The rule; `all` where nothing is left out, whatever rule does that."""
    return "all" if config.nm.n == config.nm.m else config.sampler.rule
