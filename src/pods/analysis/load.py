"""Read run folders into two tables: evaluations, a row a (run, checkpoint), and steps."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pods.config import Config
from pods.runs.attempts import environments, marks
from pods.runs.files import read_lines
from pods.runs.history import evaluated_steps, evaluation_points
from pods.runs.status import state_of
from pods.runs.store import RunStore

NAMED = ("sampler.rule", "nm.n", "nm.m")  # keys that a series' name says anyway


class IncompleteStudy(ValueError):
    """Holes in the grid of runs and evaluations; the message names each."""


@dataclass(frozen=True)
class Study:
    """The runs of one figure."""

    evaluations: pd.DataFrame
    """series, seed, step, train_seconds, accuracy, format, length, repeats, questions, run."""
    steps: pd.DataFrame
    """series, seed and the numbers of metrics.jsonl, a row a step."""
    machines: list[str]
    """Processors or GPUs that the runs ran on."""
    budget: str
    """In words, the same for all runs."""
    holes: list[str]
    """What is missing, where that was allowed."""


@dataclass(frozen=True)
class Run:
    """One run folder, opened."""

    store: RunStore
    config: Config
    identity: dict[str, Any]
    """What its hash is made of, the seed apart."""


def load(folders: Sequence[Path], allow_missing: bool = False, allow_mixed: bool = False) -> Study:
    """Read runs; a run that is not done, a seed that a series lacks, a missing record is a hole.

    Raises:
        IncompleteStudy: there are holes and they are not allowed, or nothing is left.
        ValueError: budgets differ, or machines do and that is not allowed: no fair time axis.
    """
    runs = [_open(folder) for folder in folders]
    budget = _budget([run.config for run in runs])
    series = series_names(runs)
    holes = _absent_seeds(runs, series)
    evaluations, steps, machines, changed = [], [], set(), list[str]()
    for run, name in zip(runs, series, strict=True):
        where = {"series": name, "seed": run.config.seed}
        state = state_of(run.store)
        if state != "done":
            holes.append(f"{name} seed {run.config.seed}: run is {state} ({run.store.folder})")
            continue
        for row in _evaluations(run, holes):
            evaluations.append({**where, **row, "run": run.store.folder.name})
        steps += [{**where, **_numbers(line)} for line in read_lines(run.store.metrics_path)]
        machines |= _machines(run)
        if marks(run.store):
            changed.append(f"{name} seed {run.config.seed}: {', '.join(marks(run.store))}")
    if holes and not allow_missing:
        raise IncompleteStudy("\n".join(["missing (--allow-missing leaves it out):", *holes]))
    if not evaluations:
        raise IncompleteStudy("no finished run to read")
    if len(machines) > 1 and not allow_mixed:
        raise ValueError(f"runs from different machines share no time axis: {sorted(machines)}; "
                         "--allow-mixed draws them all the same")  # fmt: skip
    if changed and not allow_mixed:
        raise ValueError("\n".join(["runs that changed on the way; --allow-mixed draws them all "
                                    "the same:", *changed]))  # fmt: skip
    table = pd.DataFrame(steps) if steps else pd.DataFrame(columns=["series", "seed", "step"])
    return Study(pd.DataFrame(evaluations), table, sorted(machines), budget, holes)


def series_names(runs: Sequence[Run]) -> list[str]:
    """Name the curve of each run: arm or rule, n and m, and whatever else differs between runs.

    Runs share a curve only if everything in their identity but the seed is equal; an arm is but a
    label, so that of one run serves for all of its curve.
    """
    keys = [_key(run) for run in runs]
    arms = {key: run.config.arm for key, run in zip(keys, runs, strict=True) if run.config.arm}
    groups = dict(zip(keys, runs, strict=True))
    short = {
        key: f"{arms.get(key) or run.config.sampler.rule} {run.config.nm.n}→{run.config.nm.m}"
        for key, run in groups.items()
    }
    varying = [k for k in _differing(list(groups.values())) if k not in NAMED]
    names = {}
    for key, run in groups.items():
        twins = [groups[other] for other in groups if short[other] == short[key]]
        shown = sorted({*varying, *(_differing(twins) if len(twins) > 1 else [])})
        parts = [f"{k}={str(run.identity.get(k))[:40]}" for k in shown]
        names[key] = ", ".join([short[key], *parts])
    return [names[key] for key in keys]


def _open(folder: Path) -> Run:
    store = RunStore(folder)
    identity = store.identity()
    del identity["seed"]
    return Run(store, store.config(), identity)


def _key(run: Run) -> str:
    return json.dumps(run.identity, sort_keys=True)


def _differing(runs: Sequence[Run]) -> list[str]:
    """Identity keys that are not equal in all of the runs."""
    names = {name for run in runs for name in run.identity}
    return sorted(n for n in names if len({str(run.identity.get(n)) for run in runs}) > 1)


def _absent_seeds(runs: Sequence[Run], series: Sequence[str]) -> list[str]:
    """Seeds that some series has and another one has no run of."""
    seeds = {run.config.seed for run in runs}
    have = {(name, run.config.seed) for name, run in zip(series, runs, strict=True)}
    wanted = [(name, seed) for name in dict.fromkeys(series) for seed in sorted(seeds)]
    return [f"{name} seed {seed}: never run" for name, seed in wanted if (name, seed) not in have]


def _evaluations(run: Run, holes: list[str]) -> Iterable[dict[str, Any]]:
    """One row a checkpoint, the repeats averaged; holes are added to the list."""
    points, repeats = evaluation_points(run.store), run.config.evaluation.repeats
    expected: int | None = None
    for step in sorted({0, run.store.status()["step"], *points, *evaluated_steps(run.store)}):
        records = pd.DataFrame(read_lines(run.store.evaluation_path(step)))
        expected = expected or len(records)
        where = f"{run.store.folder.name} step {step}"
        if step not in points:
            holes.append(f"{where}: no checkpoint, so no time")
        elif not len(records) or len(records) != expected or records.repeat.nunique() != repeats:
            holes.append(f"{where}: {len(records)} of {expected} evaluation records")
        elif records.duplicated(["repeat", "question"]).any():
            holes.append(f"{where}: evaluation records are there twice")
        else:
            yield {
                "step": step,
                "train_seconds": points[step],
                "accuracy": records.correct.mean(),
                "format": records.format.mean(),
                "length": records.length.mean(),
                "repeats": repeats,
                "questions": records.question.nunique(),
            }


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in line.items() if isinstance(value, int | float)}


def _machines(run: Run) -> set[str]:
    found = set()
    for environment in environments(run.store):
        on_gpu = run.config.hardware.device == "cuda" and environment["gpus"]
        found.add(environment["gpus"][0] if on_gpu else environment["cpu"])
    return found


def _budget(configs: Sequence[Config]) -> str:
    budgets = {(c.budget.train_seconds, c.budget.max_steps) for c in configs}
    if len(budgets) > 1:
        raise ValueError(
            f"runs with different budgets cannot share a figure: {sorted(map(str, budgets))}"
        )
    seconds, steps = budgets.pop()
    words = [f"{seconds:g} s of training clock"] if seconds is not None else []
    return " or ".join([*words, *([f"{steps} steps"] if steps is not None else [])])
