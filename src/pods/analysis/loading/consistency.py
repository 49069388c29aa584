"""Check that runs are comparable: equal evaluation, machine, versions and data."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pods.analysis.loading.run_reader import Run
from pods.analysis.loading.series_names import SEPARATOR, SYSTEM
from pods.config.schema import Config
from pods.runs.attempts import DECISIVE
from pods.runs.records import Data
from pods.system.text import short

NAMED = 8  # values of a property that differs, and runs that have one of them
DATA_KEYS = (
    "task.name",
    "task.test_set",
    "task.train_size",
    "task.few_shot",
    "task.malformed",
    "task.answer_format",
    "model.name",
    "weights",
    "evaluation.questions",
    "sampling.max_prompt_tokens",
    SYSTEM,
)
"""Keys that decide which problems a run is given, and how their prompts are written."""

OF_TIME = ("budget", "machine")
"""Properties that decide how long a run and its steps take, and not what a step computes."""


@dataclass(frozen=True)
class _Property:
    """What should be equal in all runs that have a property of this name and scope."""

    name: str
    value: str
    scope: str = ""


def inconsistencies(runs: Sequence[Run], labels: Sequence[str], priced: bool = False) -> list[str]:
    """Write a line for each property that differs, with its values and the runs that have them.

    What decides only how long a step took does not matter if the clock is `priced`.
    """
    labels_by_value: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for run, label in zip(runs, labels, strict=True):
        for item in _properties(run):
            if priced and item.name in OF_TIME:
                continue
            values = labels_by_value[item.name, item.scope]
            values.setdefault(item.value, []).append(label)

    folders = {label: run.store.folder for label, run in zip(labels, runs, strict=True)}
    lines = []
    for (name, _), values in labels_by_value.items():
        if len(values) > 1:
            lines.append(f"{name}: {_sides(values, folders)}")
    for run, label in zip(runs, labels, strict=True):
        if run.changes:
            lines.append(f"{label}: changed during the run: {', '.join(run.changes)}")
    return lines


def _properties(run: Run) -> Iterator[_Property]:
    """Yield what has to be equal in all runs."""
    evaluation = run.config.evaluation
    size = f"{evaluation.repeats} passes over {evaluation.questions or 'all'} questions"
    yield _Property("evaluation", f"{size} at temperature {evaluation.temperature:g}")
    if not run.attempts:
        yield _Property("machine", machine_of({}, run.config))
    for attempt in run.attempts:
        yield from _attempt_properties(run, attempt)
    if run.data is not None:
        yield from _data_properties(run, run.data)


def _attempt_properties(run: Run, attempt: Mapping[str, Any]) -> Iterator[_Property]:
    yield _Property("machine", machine_of(attempt, run.config))
    packages = attempt.get("packages", {})
    for package in DECISIVE:
        yield _Property(package, packages.get(package) or "not installed")


def _data_properties(run: Run, data: Data) -> Iterator[_Property]:
    """Yield the problems of both splits, to be equal if the configs name the same problems.

    A hub's data may change under the same name. The data in a folder are part of a run's identity.
    """
    scope = str([run.identity.get(key) for key in DATA_KEYS])
    splits = {"train data": data["train"], "test data": data["test"]}
    for name, split in splits.items():
        text = f"{split['problems']} problems of SHA-256 {split['sha256'][:16]}"
        yield _Property(name, text, scope)


def _sides(values: Mapping[str, list[str]], folders: Mapping[str, Path]) -> str:
    """List each value with the labels of the runs that have it, but for the commonest.

    Args:
        values: the labels of the runs that have each value.
        folders: the folders of all runs, by label.
    """
    common = max(values, key=lambda value: len(set(values[value])))
    sides = [f"{common} (most)"]
    odd: set[str] = set()
    for value, labels in values.items():
        if value != common:
            named = short(list(dict.fromkeys(labels)), NAMED)
            sides.append(f"{value} ({SEPARATOR.join(named)})")
            odd.update(labels)

    text = " | ".join(short(sides, NAMED))
    if len(odd) == 1 and len(folders) > 2:
        text += f"; `pods clean {shlex.quote(str(folders[odd.pop()]))} --yes` removes it"
    return text


def machine_of(attempt: Mapping[str, Any], config: Config) -> str:
    """Name what an attempt ran on: its GPUs if it used any, else processes and CPU."""
    gpus = attempt.get("gpus")
    processes = attempt.get("processes")
    if gpus and config.hardware.device == "cuda":
        return _gpus_text(gpus, processes)
    machine = str(attempt.get("cpu", "unknown"))
    several = processes is not None and processes > 1
    return f"{processes} processes on {machine}" if several else machine


def _gpus_text(gpus: Sequence[str], processes: int | None) -> str:
    """Name the GPUs of a run, one per process; other nodes are taken to be like this one."""
    count = len(gpus) if processes is None else processes
    kinds = ", ".join(dict.fromkeys(gpus[:count]))
    return kinds if count == 1 else f"{count} x {kinds}"
