"""Check that runs are comparable: budget, evaluation, machine, versions, data, config of an arm."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pods.analysis.run_reader import Run
from pods.analysis.series_names import SEPARATOR, SYSTEM, label
from pods.config.clock_model import MODELS, ClockModel
from pods.config.schema import Config
from pods.runs.attempts import DECISIVE

DATA_KEYS = (
    *("task.name", "task.test_set", "task.train_size", "task.test_size", "task.few_shot"),
    *("task.malformed", "task.answer_format", "model.name", "weights"),
    *("evaluation.questions", "sampling.max_prompt_tokens", SYSTEM),
)
"""Keys that decide which problems a run is given, and how their prompts are written."""
Sides = dict[str, list[str]]  # the labels of the runs that have each value


def inconsistencies(runs: Sequence[Run], series: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Write a line for each property that differs, with its values and the runs that have them.

    Args:
        runs: opened runs.
        series: the curve that each run belongs to.
        labels: the name of each run in a message.
    """
    values: dict[str, Sides] = defaultdict(lambda: defaultdict(list))
    for run, name in zip(runs, labels, strict=True):
        values["budget"][budget_text(run.config)].append(name)
        evaluation = run.config.evaluation
        size = f"{evaluation.repeats} passes over {evaluation.questions or 'all'} questions"
        values["evaluation"][f"{size} at temperature {evaluation.temperature:g}"].append(name)
        for attempt in run.attempts or [{}]:
            values["machine"][machine_of(attempt, run.config)].append(name)
            for package in DECISIVE if attempt else ():
                version = attempt.get("packages", {}).get(package)
                values[package][str(version or "not installed")].append(name)
    lines = [f"{what}: {_sides(sides)}" for what, sides in values.items() if len(sides) > 1]
    lines += _data(runs, labels)
    lines += _configs(runs, series)
    changed = [(name, run.changes) for run, name in zip(runs, labels, strict=True) if run.changes]
    return lines + [f"{name}: changed during the run: {', '.join(of)}" for name, of in changed]


def one_clock(runs: Sequence[Run]) -> ClockModel | None:
    """Return the prices that advanced the training clock of all runs; None: it was measured.

    Raises:
        ValueError: the runs have different clocks, whose seconds cannot be compared.
    """
    models = [_clock_of(run) for run in runs]
    clocks = Counter("measured" if m is None else f"{m.name}, {m.formula()}" for m in models)
    if len(clocks) > 1:
        sides = " | ".join(f"{clock} ({count} runs)" for clock, count in clocks.items())
        raise ValueError(f"budget.clock: must be one for all runs of a comparison, not {sides}")
    return models[0] if models else None


def _clock_of(run: Run) -> ClockModel | None:
    """Return the prices that a run was frozen with, whatever has become of their file."""
    prices = run.identity.get("clock model")
    if prices is None:
        return None
    name = Path(str(run.config.budget.clock_model)).name
    known = MODELS.get(name)
    same = known is not None and known.prices() == prices
    return known if same else ClockModel(name, "as frozen with the runs", **prices)


def clock_decides(config: Config) -> str:
    """Return the key and value by which a run's course depends on its clock; usually none, "".

    A budget in seconds only decides where a run ends.
    """
    seconds, every = config.budget.train_seconds, config.checkpoint.every_train_seconds
    if every is not None:
        return f"checkpoint.every_train_seconds={every:g}"
    if config.nm.menu is not None:
        return f"nm.menu={','.join(config.nm.menu)}"
    if config.group_filter.name == "resample" and seconds is not None:
        return f"group_filter=resample under budget.train_seconds={seconds:g}"
    return ""


def machine_of(attempt: Mapping[str, Any], config: Config) -> str:
    """Name what an attempt ran on: its GPUs if it used any, else processes and CPU."""
    gpus, processes = attempt.get("gpus") or [], attempt.get("processes")
    if config.hardware.device != "cuda" or not gpus:
        machine = str(attempt.get("cpu", "unknown"))
        return f"{processes} processes on {machine}" if (processes or 1) > 1 else machine
    if processes is not None:  # one GPU per process; other nodes are taken to be like this one
        gpus = (gpus * processes)[:processes]
    return gpus[0] if len(gpus) == 1 else f"{len(gpus)} x {', '.join(dict.fromkeys(gpus))}"


def budget_text(config: Config) -> str:
    """Write the budget of a run for a reader."""
    seconds, steps = config.budget.train_seconds, config.budget.max_steps
    parts = [f"{seconds:g} s of training clock"] if seconds is not None else []
    return " or ".join([*parts, *([f"{steps} steps"] if steps is not None else [])])


def _data(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """Find runs whose configs name the same problems although data.json records different ones.

    The data in a folder are part of a run's identity; a hub's may change under the same name.
    """
    lines = []
    hashes: dict[tuple[str, str], Sides] = defaultdict(lambda: defaultdict(list))
    for run, name in zip(runs, labels, strict=True):
        try:
            data = run.store.data() or {}
        except ValueError:
            lines.append(f"{name}: data.json is damaged")
            continue
        source = str([run.identity.get(key) for key in DATA_KEYS])
        for split, used in data.items():
            if split not in ("train", "test"):
                continue
            text = f"{used.get('problems')} problems of SHA-256 {used['sha256'][:16]}"
            hashes[split, source][text].append(name)
    return lines + [
        f"{split} data: {_sides(sides)}" for (split, _), sides in hashes.items() if len(sides) > 1
    ]


def _sides(values: Sides) -> str:
    """List each value with the runs that have it; those of the commonest are not listed."""
    common = max(values, key=lambda value: len(set(values[value])))
    others = [
        f"{value} ({SEPARATOR.join(dict.fromkeys(runs))})"
        for value, runs in values.items()
        if value != common
    ]
    return " | ".join([f"{common} (most)", *others])


def _configs(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Find arms whose runs differ in more than the seed without being a sweep.

    A key that is swept has a curve for each value, with the same seeds. Curves of one arm with
    different seeds are one curve whose config was changed between its runs.
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
