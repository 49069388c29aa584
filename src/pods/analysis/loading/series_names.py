"""Name the curves of a study: arm or rule, n and m, and whatever else differs between its runs."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pods.config.schema import CONF, Config
from pods.runs.identity import SOURCES, fingerprint

LABEL_KEYS = ("sampler.rule", "nm.n", "nm.m")  # every series' name contains them anyway
ARM_KEYS = (
    *("advantage.baseline", "advantage.function", "advantage.scale"),
    *("group_filter.metric", "group_filter.name"),
    "nm.groups",
    *("prompts.selector", "update.aggregation"),
    *("update.logprob_temperature", "update.warmup_from_zero"),
)
"""Keys that an arm may set. The arm's label implies them where they are as in the arm's file."""
SYSTEM = "system message"  # of the identity: the hash of task.system
SEPARATOR = ", "
LONGEST = 40  # characters of a value
Runs = Sequence[tuple[Config, Mapping[str, Any]]]
"""The config and the identity of each run."""


def series_names(runs: Runs) -> list[str]:
    """Name the curve of each run: its label, and the keys that tell it from other curves.

    Runs share a curve only if everything in their identity but the seed is equal. An arm is merely
    a label: the label of one run serves for all runs of its curve.
    """
    return [
        SEPARATOR.join([name, *(f"{k}={_text(k, identity, runs)}" for k in sorted(shown))])
        for (_, identity), (name, shown) in zip(runs, _labels_and_keys(runs), strict=True)
    ]


def varied(runs: Runs) -> list[dict[str, Any]]:
    """Return the values that each run has of every key that the name of some curve shows.

    They are what varies besides arm, n, m and seed. A table has a column for each of them.
    """
    keys = sorted(set[str]().union(*(shown for _, shown in _labels_and_keys(runs))))
    values = [{key: identity.get(key) for key in keys} for _, identity in runs]
    return [
        {k: v if isinstance(v, int | float) else _text(k, of, runs) for k, v in of.items()}
        for of in values
    ]


def settings(identity: Mapping[str, Any]) -> str:
    """Return a hash of all that a run has besides its rule, n, m and seed."""
    hidden = {*LABEL_KEYS, SOURCES["sampler.rule"], "seed"}
    return fingerprint({key: value for key, value in identity.items() if key not in hidden})


def place(identity: Mapping[str, Any]) -> tuple[tuple[bool, float, str], ...]:
    """Return what a study's curves are sorted by: rule, n and m, then all else but the seed."""
    keys = [*LABEL_KEYS, *sorted({*identity} - {"seed", *LABEL_KEYS})]
    at = [identity.get(key) for key in keys]
    return tuple((False, v, "") if isinstance(v, int | float) else (True, 0, str(v)) for v in at)


def _labels_and_keys(runs: Runs) -> list[tuple[str, set[str]]]:
    """Return the label of each run's curve, and the keys that its name shows beside the label."""
    identities = [{**identity, "seed": None} for _, identity in runs]
    codes = [json.dumps(identity, sort_keys=True) for identity in identities]
    arms = {code: config.arm for code, (config, _) in zip(codes, runs, strict=True) if config.arm}
    of_code = zip([config for config, _ in runs], identities, strict=True)
    curves = dict(zip(codes, of_code, strict=True))
    labels = {code: config.series_label(arms.get(code)) for code, (config, _) in curves.items()}
    hidden = {*LABEL_KEYS, *SOURCES.values(), *_told_by_reproduction(list(curves.values()))}
    varying = {*differing([identity for _, identity in curves.values()])} - hidden
    shown = {}
    for code, (_, identity) in curves.items():
        of_label = [of for other, (_, of) in curves.items() if labels[other] == labels[code]]
        told = _told_by_arm(arms[code], identity) if code in arms and varying else set()
        keys = (varying - told) | {*differing(of_label)}
        keys -= {source for k, source in SOURCES.items() if not _edited(of_label, k, source)}
        shown[code] = keys
    return [(labels[code], shown[code]) for code in codes]


def _told_by_arm(arm: str, identity: Mapping[str, Any]) -> set[str]:
    """Return the keys that an arm's label implies: all that an arm of one's own may set."""
    implied = _implied(arm)
    return {k for k in ARM_KEYS if k not in implied or implied[k] == identity.get(k)}


def _edited(identities: Sequence[Mapping[str, Any]], key: str, source: str) -> bool:
    """Return whether there are two sources of one function of a user."""
    sources = {(str(identity.get(key)), identity.get(source)) for identity in identities}
    return len(sources) > len({name for name, _ in sources})


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


@cache
def _yaml(name: str) -> dict[str, Any]:
    path = CONF / f"{name}.yaml"
    return dict(yaml.safe_load(path.read_text())) if path.is_file() else {}


def _text(key: str, identity: Mapping[str, Any], runs: Runs) -> str:
    """Show a value; an adapter by the end of its first path and a hash of its content."""
    value = identity.get(key)
    if key != "adapter" or value is None:
        return _short(value, key)
    path = next(str(config.model.path) for config, of in runs if of.get(key) == value)
    return f"{'/'.join(Path(path).parts[-2:])}#{fingerprint({key: value})[:4]}"


def _short(value: object, key: str) -> str:
    """Show a value, or its beginning and a hash, so that two different ones have two names."""
    text = str(value)
    if key in SOURCES.values():
        text = "+".join(digest[:8] for digest in text.split("+"))
    if key == "task.reward":
        text = "+".join(value) if isinstance(value, list) else "built-in"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 12]}…#{digest}"


def differing(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the keys that are not equal in all identities."""
    names = {name for identity in identities for name in identity}
    return sorted(n for n in names if len({str(i.get(n)) for i in identities}) > 1)
