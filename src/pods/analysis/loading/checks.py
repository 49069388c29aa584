"""Check runs before anything is averaged: each one alone, and whether they are comparable.

A fault is something of one run that is missing, duplicated, cut off, unexpected or contradictory.
An inconsistency is a difference between runs: in budget, evaluation, machine, versions or data.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pods.analysis.loading.run_reader import Run
from pods.analysis.loading.series_names import SEPARATOR, SYSTEM
from pods.config.clock_model import L40S, ClockModel
from pods.config.schema import Config
from pods.runs.attempts import DECISIVE
from pods.runs.history import checkpoint_fault, is_log_altered

DATA_KEYS = (
    *("task.name", "task.test_set", "task.train_size", "task.few_shot"),
    *("task.malformed", "task.answer_format", "model.name", "weights"),
    *("evaluation.questions", "sampling.max_prompt_tokens", SYSTEM),
)
"""Keys that decide which problems a run is given, and how their prompts are written."""
SHOWN = 9  # missing steps that a line lists


@dataclass(frozen=True)
class Fault:
    """Something about a run that keeps it from being complete."""

    label: str
    """Series, seed and, where it has one, step."""
    message: str
    step: int | None = None
    """The evaluation that cannot be used because of it; None: it concerns the whole run."""
    unusable: bool = False
    """Nothing of the run can be used, because its clock or its identity is in doubt."""

    def __str__(self) -> str:
        return f"{self.label}: {self.message}"


def faults(run: Run, label: str) -> Iterator[Fault]:
    """Name everything that keeps a run, of this series and seed, from being complete."""
    if run.state != "done":
        yield Fault(label, f"run is {run.state} ({run.store.folder})")
    for message in (*run.contradictions, *_log_faults(run)):
        yield Fault(label, message, unusable=True)
    for step in sorted({*run.points, *run.means, *run.incomplete}):
        for message in _evaluation_faults(run, step):
            yield Fault(f"{label} step {step}", message, step)
    if run.state == "done":
        names = {path.name for path in run.store.checkpoints.glob("step-*") if path.is_dir()}
        for name in sorted(names - {f"step-{step:06d}" for step in run.points}):
            yield Fault(label, f"checkpoint {name} belongs to no evaluation point")


def _log_faults(run: Run) -> Iterator[str]:
    """Check metrics.jsonl for each step once, a clock that only advances, and a spent budget."""
    counts = Counter(line["step"] for line in run.lines)
    last = max(counts, default=0)
    repeated = [step for step, count in sorted(counts.items()) if count > 1]
    yield from (f"metrics.jsonl has step {step} {counts[step]} times" for step in repeated)
    missing = [step for step in range(1, 1 + max(run.step, last)) if step not in counts]
    if missing:
        more = ", …" if len(missing) > SHOWN else ""
        yield f"metrics.jsonl lacks step {', '.join(map(str, missing[:SHOWN]))}{more}"
    clock = [0.0, *(line["train_seconds"] for line in run.lines)]
    if clock != sorted(clock):
        yield "the clock of metrics.jsonl goes backwards"
    seconds, steps = run.config.budget.train_seconds, run.config.budget.max_steps
    spent = (seconds is not None and clock[-1] >= seconds) or (steps is not None and last >= steps)
    if run.state == "done" and not spent:
        yield f"run is done, but ends before its budget, at step {last} and {clock[-1]:g} s"


def _evaluation_faults(run: Run, step: int) -> Iterator[str]:
    """Check one evaluation, and the checkpoint that it belongs to against the run's log."""
    if step not in run.points:
        yield "evaluated, but it is no evaluation point"
        return
    folder, logged = run.store.checkpoint(step), run.points[step]
    if fault := checkpoint_fault(run.store, folder, only="clock.json"):
        yield f"checkpoint: {fault}" if folder.is_dir() else "no checkpoint"
    elif (seconds := run.store.clock(folder)["train_seconds"]) != logged:
        yield f"checkpoint was made at {seconds:g} s, but the log says {logged:g} s"
    elif step == max(run.points) and is_log_altered(run.store, folder):  # it covers the whole log
        yield "metrics.jsonl is not the log that the checkpoint recorded"
    if step not in run.means:
        yield run.incomplete.get(step, "no evaluation")


def inconsistencies(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """Write a line for each property that differs, with its values and the runs that have them.

    A hub's data may change under the same name, so data.json is compared among the runs whose
    configs name the same problems. The data in a folder are part of a run's identity.
    """
    values: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, name in zip(runs, labels, strict=True):
        evaluation = run.config.evaluation
        size = f"{evaluation.repeats} passes over {evaluation.questions or 'all'} questions"
        values["budget", ""][budget_text(run.config)].append(name)
        values["evaluation", ""][f"{size} at temperature {evaluation.temperature:g}"].append(name)
        for attempt in run.attempts or [{}]:
            values["machine", ""][machine_of(attempt, run.config)].append(name)
            for package in DECISIVE if attempt else ():
                version = attempt.get("packages", {}).get(package)
                values[package, ""][str(version or "not installed")].append(name)
        data, source = run.data, str([run.identity.get(key) for key in DATA_KEYS])
        for split, used in (("train", data["train"]), ("test", data["test"])) if data else ():
            text = f"{used['problems']} problems of SHA-256 {used['sha256'][:16]}"
            values[f"{split} data", source][text].append(name)
    of = dict(zip(labels, runs, strict=True))
    lines = [f"{w}: {_sides(sides, of)}" for (w, _), sides in values.items() if len(sides) > 1]
    changed = [(name, run.changes) for run, name in zip(runs, labels, strict=True) if run.changes]
    return lines + [f"{name}: changed during the run: {', '.join(of)}" for name, of in changed]


def clock_note(runs: Sequence[Run]) -> str:
    """Say by which prices the training clock of all runs was advanced; "": it was measured.

    `ValueError`: the runs have different clocks, whose seconds cannot be compared.
    """
    models = [_clock_of(run) for run in runs]
    clocks = Counter("measured" if m is None else f"{m.name}, {m.formula()}" for m in models)
    if len(clocks) > 1:
        sides = " | ".join(f"{clock} ({count} runs)" for clock, count in clocks.items())
        raise ValueError(f"budget.clock_model: must be one for all runs compared, not {sides}")
    if not models or (model := models[0]) is None:
        return ""
    clock, formula = f"modelled by {model.name}", f"a step takes {model.formula()} ({model.source})"
    return f"training time is {clock}, not measured: {formula}"


def _clock_of(run: Run) -> ClockModel | None:
    """Return the prices that a run was frozen with, whatever has become of their file."""
    prices = run.identity.get("clock model")
    if prices is None:
        return None
    name = Path(str(run.config.budget.clock_model)).name
    same = (name, prices) == (L40S.name, L40S.prices())
    return L40S if same else ClockModel(name, "as frozen with the runs", **prices)


def machine_of(attempt: Mapping[str, Any], config: Config) -> str:
    """Name what an attempt ran on: its GPUs if it used any, else processes and CPU."""
    gpus, processes = attempt.get("gpus") or [], attempt.get("processes")
    if config.hardware.device != "cuda" or not gpus:
        machine = str(attempt.get("cpu", "unknown"))
        return f"{processes} processes on {machine}" if (processes or 1) > 1 else machine
    if processes is not None:  # one GPU per process; other nodes are taken to be like this one
        gpus = (gpus * processes)[:processes]
    several = f"{len(gpus)} x {', '.join(dict.fromkeys(gpus))}"
    return gpus[0] if len(gpus) == 1 else several


def budget_text(config: Config) -> str:
    """Write the budget of a run for a reader."""
    seconds, steps = config.budget.train_seconds, config.budget.max_steps
    parts = [f"{seconds:g} s of training clock"] if seconds is not None else []
    return " or ".join([*parts, *([f"{steps} steps"] if steps is not None else [])])


def _sides(values: dict[str, list[str]], of: Mapping[str, Run]) -> str:
    """List each value with the labels of the runs that have it, but for the commonest."""
    common = max(values, key=lambda value: len(set(values[value])))
    others = {value: dict.fromkeys(runs) for value, runs in values.items() if value != common}
    sides = [f"{value} ({SEPARATOR.join(runs)})" for value, runs in others.items()]
    text, odd = " | ".join([f"{common} (most)", *sides]), {*chain(*others.values())}
    if len(odd) == 1 < len(of) - 1:
        text += f"; `pods clean {of[min(odd)].store.folder} --yes` removes it"
    return text
