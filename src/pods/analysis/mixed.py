"""Runs that should be alike and are not: budget, machine, versions, config within an arm."""

from collections import defaultdict
from collections.abc import Sequence

from pods.analysis.names import SEPARATOR, label
from pods.config import Config
from pods.runs.attempts import environments, marks
from pods.runs.environment import DECISIVE
from pods.runs.store import RunStore


def mixtures(
    runs: Sequence[tuple[RunStore, Config]], series: Sequence[str], where: Sequence[str]
) -> list[str]:
    """A line for each thing that differs, with its values and whose they are.

    Args:
        runs: store and config of each.
        series: the curve of each.
        where: each run in words.
    """
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (store, config), at in zip(runs, where, strict=True):
        budget = config.budget
        seconds = "" if budget.train_seconds is None else f"{budget.train_seconds:g} s"
        steps = "" if budget.max_steps is None else f"{budget.max_steps} steps"
        values["budget"][" or ".join(filter(None, (seconds, steps)))].append(at)
        for attempt in environments(store):
            gpu = config.hardware.device == "cuda" and attempt["gpus"]
            machine = str(attempt["gpus"][0] if gpu else attempt["cpu"])
            values["machine"][machine].append(at)
            for package in DECISIVE:
                version = attempt.get("packages", {}).get(package)
                values[package][str(version or "not installed")].append(at)
    lines = [f"{what}: {_sides(of)}" for what, of in values.items() if len(of) > 1]
    lines += _configs(runs, series)
    lines += [f"{at}: changed on the way: {', '.join(marks(store))}"
              for (store, _), at in zip(runs, where, strict=True) if marks(store)]  # fmt: skip
    return lines


def _sides(values: dict[str, list[str]]) -> str:
    """Each value with the runs that have it; the commonest is not listed run by run."""
    common = max(values, key=lambda value: len(set(values[value])))
    parts = [f"{common} (most)"]
    for value, runs in values.items():
        if value != common:
            parts.append(f"{value} ({SEPARATOR.join(dict.fromkeys(runs))})")
    return " | ".join(parts)


def _configs(runs: Sequence[tuple[RunStore, Config]], series: Sequence[str]) -> list[str]:
    """Arms whose runs differ in more than the seed, without a sweep over it.

    A key that is swept over has a curve for each value, with the same seeds. Curves of one arm
    with other seeds are one curve whose config was changed between its runs.
    """
    seeds: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for (_, config), name in zip(runs, series, strict=True):
        seeds[label(config, config.arm)][name].add(config.seed)
    lines = []
    for arm, curves in seeds.items():
        if len({frozenset(of) for of in curves.values()}) > 1:
            sides = [
                f"{name.partition(SEPARATOR)[2] or name} "
                f"(seeds {SEPARATOR.join(map(str, sorted(of)))})"
                for name, of in curves.items()
            ]
            lines.append(f"config within {arm}: {' | '.join(sides)}")
    return lines
