"""Final scores of one comparison made in several settings, such as models: a pair is a setting.

Seeds of one setting share its model and data, so that they are no independent repeats of the
question which method is better in general. So each setting counts once, by the mean of its seeds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import msgspec

from pods_lab.audit.formats import Log
from pods_lab.audit.labels import labels
from pods_lab.audit.mapping import Mapping
from pods_lab.audit.values import number

SeedLogs = dict[Any, Log]
"""The runs of a method in a setting, by seed."""


@dataclass(frozen=True)
class Pooled:
    """A log for each method and setting, with one score, and how to read them."""

    logs: list[Log]
    mapping: Mapping
    left_out: list[str]
    note: str


def pool(logs: Sequence[Log], mapping: Mapping) -> Pooled:
    """Average the final scores of each method and setting over the seeds of the setting.

    These are the seeds that most of its methods have; a method that lacks one is left out there.
    A ValueError says that a run is no final score.
    """
    settings = _by_setting(logs, mapping)
    pooled: list[Log] = []
    left_out: list[str] = []
    for place, (setting, methods) in enumerate(settings.items()):
        counts = Counter(seed for runs in methods.values() for seed in runs)
        seeds = [seed for seed, count in counts.items() if 2 * count > len(methods)]
        for method, runs in methods.items():
            left_out += [
                f"{method} {setting} seed {seed}: most methods have no such seed there"
                for seed in runs.keys() - set(seeds)
            ]
            lacking = [str(seed) for seed in seeds if seed not in runs]
            if lacking or not seeds:
                missed = ", ".join(lacking) or "of others"
                left_out.append(f"{method} {setting}: lacks seeds {missed}, so it is left out")
                continue
            scores = [_score(runs[seed], mapping) for seed in seeds]
            row = {"step": 1, str(mapping.score): fmean(scores)}
            labelled = {"method": method, "seed": place}
            first = runs[seeds[0]]
            pooled.append(Log(f"{method} {setting}", first.path, [row], config=labelled))

    pooled, alone = _with_partner(pooled, mapping.baseline)
    left_out += alone
    note = (
        f"a pair is one of {len(settings)} settings of {' and '.join(mapping.setting)}: the mean "
        "over its seeds. What the sentences call a seed is a setting, and the means of two methods "
        "are over the settings of each"
    )
    changed = msgspec.structs.replace(
        mapping,
        method="config:method",
        seed="config:seed",
        setting=[],
        seconds=None,
        tokens=None,
    )
    return Pooled(pooled, changed, left_out, note)


def _with_partner(logs: Sequence[Log], baseline: str | None) -> tuple[list[Log], list[str]]:
    """Leave out methods that share less than two settings with the baseline.

    Without one it is the method with the most settings. Scores of different settings say nothing.
    """
    settings: dict[str, set[int]] = {}
    for log in logs:
        settings.setdefault(log.config["method"], set()).add(log.config["seed"])
    reference = baseline or max(settings, key=lambda name: len(settings[name]), default="")
    of_reference = settings.get(reference, set())
    alone = [name for name, own in settings.items() if len(own & of_reference) < 2]
    lines = [f"{name}: shares less than two settings with {reference}" for name in alone]
    return [log for log in logs if log.config["method"] not in alone], lines


def _by_setting(logs: Sequence[Log], mapping: Mapping) -> dict[str, dict[str, SeedLogs]]:
    """Sort runs by setting, method and seed; those without a seed are counted."""
    settings: dict[str, dict[str, SeedLogs]] = {}
    methods = labels(logs, "method", mapping.method)
    seeds = labels(logs, "seed", mapping.seed)
    for log, method, seed in zip(logs, methods, seeds, strict=True):
        if len(log.rows) != 1:
            raise ValueError(
                f"setting: must be of a table with one row for each run; {log.name} has "
                f"{len(log.rows)}"
            )
        words = [str(log.rows[0].get(column, "")) for column in mapping.setting]
        setting = " ".join(word for word in words if word)
        runs = settings.setdefault(setting, {}).setdefault(str(method), {})
        runs[len(runs) if seed is None else seed] = log
    return settings


def _score(log: Log, mapping: Mapping) -> float:
    return number(log.rows[0].get(mapping.score or ""))
