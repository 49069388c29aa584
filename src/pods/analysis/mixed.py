"""Runs that should be alike and are not: budget, machine, versions, config within an arm."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pods.analysis.names import SEPARATOR, label
from pods.analysis.read import Run
from pods.config import Config
from pods.runs.environment import DECISIVE

DATA = ("task.name", "task.test_set", "task.train_size", "task.test_size", "task.few_shot",
        "task.malformed", "task.answer_format", "model.name", "weights", "evaluation.questions",
        "sampling.max_prompt_tokens")  # fmt: skip
"""Keys that decide which problems a run is given, and how they are put."""


def mixtures(runs: Sequence[Run], series: Sequence[str], where: Sequence[str]) -> list[str]:
    """A line for each thing that differs, with its values and whose they are.

    Args:
        runs: opened.
        series: the curve of each.
        where: each run in words.
    """
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, at in zip(runs, where, strict=True):
        values["budget"][budget_of(run.config)].append(at)
        asked = run.config.evaluation
        size = f"{asked.repeats} passes over {asked.questions or 'all'} questions"
        values["evaluation"][f"{size} at temperature {asked.temperature:g}"].append(at)
        for attempt in run.attempts or [{}]:
            values["machine"][machine_of(attempt, run.config)].append(at)
            for package in DECISIVE if attempt else ():
                version = attempt.get("packages", {}).get(package)
                values[package][str(version or "not installed")].append(at)
    lines = [f"{what}: {_sides(of)}" for what, of in values.items() if len(of) > 1]
    lines += _data(runs, where)
    lines += _configs(runs, series)
    changed = [(at, run.changes) for run, at in zip(runs, where, strict=True) if run.changes]
    return lines + [f"{at}: changed on the way: {', '.join(of)}" for at, of in changed]


def machine_of(attempt: Mapping[str, Any], config: Config) -> str:
    """What an attempt at the run ran on: the GPUs where it used some, else processes and CPU."""
    gpus, processes = attempt.get("gpus") or [], attempt.get("processes")
    if config.hardware.device != "cuda" or not gpus:
        machine = str(attempt.get("cpu", "unknown"))
        return f"{processes} processes on {machine}" if (processes or 1) > 1 else machine
    if processes is not None:  # a GPU each; where there are fewer, other machines are like this one
        gpus = (gpus * processes)[:processes]
    return gpus[0] if len(gpus) == 1 else f"{len(gpus)} x {', '.join(dict.fromkeys(gpus))}"


def budget_of(config: Config) -> str:
    """In words."""
    seconds, steps = config.budget.train_seconds, config.budget.max_steps
    parts = [f"{seconds:g} s of training clock"] if seconds is not None else []
    return " or ".join([*parts, *([f"{steps} steps"] if steps is not None else [])])


def _data(runs: Sequence[Run], where: Sequence[str]) -> list[str]:
    """Runs whose configs ask for the same problems, and whose data.json says that they had others.

    A folder's data are part of a run's identity; a hub's may change under the same name.
    """
    lines = []
    hashes: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, at in zip(runs, where, strict=True):
        try:
            facts = run.store.data() or {}
        except ValueError:
            lines.append(f"{at}: data.json is damaged")
            continue
        asked = str([run.identity.get(key) for key in DATA])
        for split, used in facts.items():
            if split in ("train", "test"):
                found = f"{used.get('problems')} problems of SHA-256 {used['sha256'][:16]}"
                hashes[split, asked][found].append(at)
    return lines + [
        f"{split} data: {_sides(of)}" for (split, _), of in hashes.items() if len(of) > 1
    ]


def _sides(values: dict[str, list[str]]) -> str:
    """Each value with the runs that have it; the commonest is not listed run by run."""
    common = max(values, key=lambda value: len(set(values[value])))
    parts = [f"{common} (most)"]
    for value, runs in values.items():
        if value != common:
            parts.append(f"{value} ({SEPARATOR.join(dict.fromkeys(runs))})")
    return " | ".join(parts)


def _configs(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Arms whose runs differ in more than the seed, without a sweep over it.

    A key that is swept over has a curve for each value, with the same seeds. Curves of one arm
    with other seeds are one curve whose config was changed between its runs.
    """
    seeds: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for run, name in zip(runs, series, strict=True):
        seeds[label(run.config, run.config.arm)][name].add(run.config.seed)
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
