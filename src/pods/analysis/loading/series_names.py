"""Name the curves of a study: arm or rule, n and m, and whatever else differs between its runs."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.runs.identity import SOURCES, fingerprint

LABEL_KEYS = ("sampler.rule", "nm.n", "nm.m")  # every series' name contains them anyway
HIDDEN = {*LABEL_KEYS, *SOURCES.values()}
"""Keys that a name shows only if curves of one label differ in them."""
SYSTEM = "system message"  # of the identity: the hash of task.system
NAMED_BY = {
    SYSTEM: "task.system",
    "data": "task.path",
    "weights": "model.path",
    "adapter": "model.path",
}
"""Contents of files in the identity, and the keys of the config that name the files."""
START = ("weights", "adapter", "model.name")
"""Keys of the identity that name the start policy; columns of `Study.runs` if they vary, unless
each seed has a start policy of its own."""
SEPARATOR = ", "
LONGEST = 40  # characters of a value
DIGITS = 8  # of a hash in a name
Runs = Sequence[tuple[Config, Mapping[str, Any]]]
"""The config and the identity of each run."""


@dataclass(frozen=True)
class _Curve:
    """What the runs of one curve have in common."""

    config: Config
    identity: dict[str, Any]  # without the seed

    @property
    def label(self) -> str:
        return self.config.series_label()

    def text(self, key: str) -> str:
        """Return a value of the identity, as text; None if it has no such key."""
        return str(self.identity.get(key))

    def sets(self, key: str) -> bool:
        """Return whether the files of the curve's arm and of its `reproduction` set a key."""
        start = f"{NAMED_BY.get(key, key)}="
        return any(setting.startswith(start) for setting in self.config.label_settings)

    def implies(self, key: str) -> bool:
        """Return whether the key has the value that those files set."""
        name = NAMED_BY.get(key, key)
        return f"{name}={attrgetter(name)(self.config)}" in self.config.label_settings


def series_names(runs: Runs) -> list[str]:
    """Name the curve of each run: its label, and the keys that tell it from other curves.

    Runs share a curve only if everything in their identity but the seed is equal. An arm is merely
    a label: the label of one run serves for all runs of its curve.
    """
    curves = _curves(runs)
    shown = _shown_keys(curves)
    names = {}
    for code, curve in curves.items():
        values = [f"{key}={_text(key, curve)}" for key in sorted(shown[code])]
        names[code] = SEPARATOR.join([curve.label, *values])
    return [names[_code(identity)] for _, identity in runs]


def have_own_starts(identities: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each seed has a start policy of its own, the same in all of its runs."""
    starts: dict[Any, set[str]] = {}
    for identity in identities:
        start = str([identity.get(key) for key in START])
        starts.setdefault(identity.get("seed"), set()).add(start)
    different = set().union(*starts.values())
    return len(starts) > 1 and len(different) == len(starts) == sum(map(len, starts.values()))


def without_start(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity of a run whose start policy belongs to its seed."""
    return {key: value for key, value in identity.items() if key not in START}


def varied(runs: Runs) -> list[dict[str, Any]]:
    """Return the values that each run has of every key that the name of some curve shows.

    They are what varies besides arm, n, m and seed. A table has a column for each of them.
    """
    curves = _curves(runs)
    keys = sorted(set().union(*_shown_keys(curves).values()))
    values = []
    for _, identity in runs:
        curve = curves[_code(identity)]
        values.append({key: _cell(key, curve) for key in keys})
    return values


def settings(identity: Mapping[str, Any]) -> str:
    """Return a hash of all that a run has besides its rule, n, m and seed."""
    hidden = {*LABEL_KEYS, SOURCES["sampler.rule"], "seed"}
    return fingerprint({key: value for key, value in identity.items() if key not in hidden})


def place(identity: Mapping[str, Any]) -> tuple[tuple[bool, float, str], ...]:
    """Return what a study's curves are sorted by: rule, n and m, then all else but the seed."""
    others = set(identity) - {"seed", *LABEL_KEYS}
    return tuple(sortable(identity.get(key)) for key in [*LABEL_KEYS, *sorted(others)])


def sortable(value: object) -> tuple[bool, float, str]:
    """Return what sorts values: numbers by size, before all others by text."""
    if isinstance(value, int | float):
        return False, value, ""
    return True, 0, str(value)


def _code(identity: Mapping[str, Any]) -> str:
    """Return the same text for all runs of a curve."""
    return json.dumps({**identity, "seed": None}, sort_keys=True)


def _curves(runs: Runs) -> dict[str, _Curve]:
    """Return the curves by the code of their runs, each with the config of a run with an arm."""
    curves: dict[str, _Curve] = {}
    for config, identity in runs:
        code = _code(identity)
        if code not in curves or config.arm is not None:
            curves[code] = _Curve(config, {**identity, "seed": None})
    return curves


def _shown_keys(curves: Mapping[str, _Curve]) -> dict[str, set[str]]:
    """Return the keys that the name of each curve shows, by its code.

    They are the keys that differ and whose values its label does not tell. If several curves have
    one label, they are all keys in which those differ.
    """
    if not curves:
        return {}
    all_curves = list(curves.values())
    varying = _differing(all_curves) - HIDDEN
    shown = {}
    for code, curve in curves.items():
        same_label = [other for other in all_curves if other.label == curve.label]
        implied = {key for key in varying if _is_told(key, curve, all_curves)}
        shown[code] = (varying - implied) | _differing(same_label) - _unedited_sources(same_label)
    return shown


def _is_told(key: str, curve: _Curve, curves: Sequence[_Curve]) -> bool:
    """Return whether a curve's label tells its value of a key.

    It does if the arm's file sets this value, or if no file of the arm sets any and all curves
    whose label does not imply theirs have the same value.
    """
    if curve.sets(key):
        return curve.implies(key)
    values = {other.text(key) for other in curves if not other.implies(key)}
    return len(values) == 1


def _unedited_sources(curves: Sequence[_Curve]) -> set[str]:
    """Return the keys of sources that differ only because the names of their functions do."""
    unedited = set()
    for key, source in SOURCES.items():
        names = {curve.text(key) for curve in curves}
        versions = {(curve.text(key), curve.text(source)) for curve in curves}
        if len(versions) == len(names):
            unedited.add(source)
    return unedited


def _differing(curves: Sequence[_Curve]) -> set[str]:
    """Return the keys that are not equal in all curves."""
    first = curves[0]
    keys = set()
    for curve in curves:
        for key in curve.identity.keys() | first.identity.keys():
            if curve.text(key) != first.text(key):
                keys.add(key)
    return keys


def _cell(key: str, curve: _Curve) -> Any:
    """Return a number as it is, and another value as the curve's name shows it."""
    value = curve.identity.get(key)
    return value if isinstance(value, int | float) else _text(key, curve)


def _text(key: str, curve: _Curve) -> str:
    """Show a value, or its beginning and a hash, so that two different ones have two names."""
    value = curve.identity.get(key)
    if key == "adapter" and value is not None:  # hashes of its files
        end = "/".join(Path(str(curve.config.model.path)).parts[-2:])
        return f"{end}#{fingerprint({key: value})[:4]}"
    if key == "task.reward":
        return _shortened("+".join(value) if isinstance(value, list) else "built-in")
    if key in SOURCES.values():
        return _shortened("+".join(digest[:DIGITS] for digest in str(value).split("+")))
    return _shortened(str(value))


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    return f"{text[: LONGEST - DIGITS - 4]}…#{digest}"
