"""Load a study from its run folders, or from imported logs, and check it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pods.analysis.loading import checks
from pods.analysis.loading.imports import read_import
from pods.analysis.loading.run_reader import Row, Run, open_run
from pods.analysis.loading.series_names import place, series_names, settings, varied
from pods.analysis.loading.study import KEY, Study
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.history import clocks
from pods.runs.store import RunStore, run_folders

Rows = tuple[Row, list[Row], list[Row]]
"""Of one run: its row of `Study.runs`, and its rows of evaluations and steps."""


def load(folder: Path, folders: Sequence[Path], allow: bool = False) -> Study:
    """Read a study and check that it is complete and consistent.

    Args:
        folder: the study's folder.
        folders: the folders of its runs; none: the study consists of imported logs.
        allow: leave out what is missing or damaged, accept runs of several machines or versions,
            and report both.

    `ValueError`: something is missing, or budgets, machines, versions or data differ, and that is
    not allowed; the message names each. Nothing is left, or imported logs are damaged.
    """
    if not folders:
        return read_import(folder).study(folder.name)
    opened, unreadable = _opened(folders)
    pending = [run for run in opened if run.state == "pending" and not clocks(run.store)]
    runs = [run for run in opened if run not in pending]
    identities = [(run.config, run.identity) for run in runs]
    series, values = series_names(identities), varied(identities)
    labels = [f"{name} seed {run.config.seed}" for name, run in zip(series, runs, strict=True)]
    found = [list(checks.faults(run, name)) for run, name in zip(runs, labels, strict=True)]
    duplicates = _duplicates(runs, labels)
    missing = [*unreadable, *map(_never_began, pending)]
    missing += [] if unreadable else _missing_seeds(runs, series, pending)  # it may be those
    missing += [*duplicates.values(), *(str(fault) for of_run in found for fault in of_run)]
    note, inconsistent = checks.clock_note(runs), checks.inconsistencies(runs, labels)
    if not allow:
        _refuse(missing, () if unreadable or pending else _odd_one(runs, series), inconsistent)
    of_runs = zip(runs, series, found, values, strict=True)
    rows = [_rows(*of_run) for of_run in of_runs if of_run[0].store.folder not in duplicates]
    known = {
        "budget": ", ".join(dict.fromkeys(checks.budget_text(run.config) for run in runs)),
        "order": _order(folder, dict(zip(series, runs, strict=True))),
        "varied": [*values[0]] if values else [],
        "note": note,
    }
    return _study(folder.name, rows, missing=missing, inconsistencies=inconsistent, **known)


def _opened(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the runs that can be read, in their order, and why the others cannot."""
    runs, unreadable = [], []
    for folder in folders:
        try:
            runs.append(open_run(folder))
        except ValueError as error:
            unreadable.append(str(error))
    return sorted(runs, key=lambda run: (place(run.identity), run.config.seed)), unreadable


def _order(folder: Path, curves: Mapping[str, Run]) -> list[str]:
    """List the curves of a study's folder in their order; one that is not loaded has no name."""
    places = {place(run.identity): name for name, run in curves.items()}
    for run in run_folders(folder):
        with suppress(*READ_ERRORS):
            places.setdefault(place(RunStore(run).identity()), "")
    return [name for _, name in sorted(places.items())]


def _duplicates(runs: Sequence[Run], labels: Sequence[str]) -> dict[Path, str]:
    """Describe runs of equal series and seed, by folder; one run without contradictions stays."""
    first: dict[str, Path] = {}
    duplicates = {}
    pairs = sorted(zip(runs, labels, strict=True), key=lambda pair: bool(pair[0].contradictions))
    for run, name in pairs:
        folder = run.store.folder
        if first.setdefault(name, folder) != folder:
            duplicates[folder] = f"{name}: duplicate runs ({first[name]} and {folder})"
    return duplicates


def _never_began(run: Run) -> str:
    """Say what becomes of a run that has nothing but its config."""
    how = f"the same command makes it, `pods clean {run.store.folder} --yes` removes it"
    return f"{run.config.series_label()} seed {run.config.seed} never began: {how}"


def _missing_seeds(runs: Sequence[Run], series: Sequence[str], pending: Sequence[Run]) -> list[str]:
    """Name the seeds that one series has and another one lacks, even as a run that never began."""
    names = {place(run.identity): name for run, name in zip(runs, series, strict=True)}
    seeds = sorted({run.config.seed for run in runs})
    present = {(names.get(place(run.identity)), run.config.seed) for run in (*runs, *pending)}
    return [
        f"{n} seed {s}: never run" for n in names.values() for s in seeds if (n, s) not in present
    ]


def _odd_one(runs: Sequence[Run], series: Sequence[str]) -> Iterator[str]:
    """Yield how to remove the run that alone has no second one in its series."""
    alone = [run for run, name in zip(runs, series, strict=True) if series.count(name) == 1]
    if len(alone) == 1 < len(runs) - 1:
        yield f"one run is alone: `pods clean {alone[0].store.folder} --yes` removes it"


def _refuse(missing: Sequence[str], alone: Iterable[str], inconsistent: Sequence[str]) -> None:
    remedy = "the sweep's command makes a run and its evaluations"
    lines = [f"missing ({remedy}, --allow leaves it out):", *missing, *alone] if missing else []
    if inconsistent:
        lines += ["inconsistent (--allow accepts it, study=NAME keeps runs apart):", *inconsistent]
    if lines:
        raise ValueError("\n".join(lines))


def _rows(run: Run, series: str, found: Sequence[checks.Fault], varied: Row) -> Rows:
    """Make the rows of a run of a series, without what has a fault."""
    key = dict(zip(KEY, (series, run.config.seed, run.store.folder.name), strict=True))
    about = key | _about(run, varied) | {"complete": not found}
    if any(fault.unusable for fault in found):
        return about, [], []
    evaluations = [
        {**key, "step": step, "train_seconds": run.points[step], **run.means[step]}
        for step in sorted({*run.points} - {fault.step for fault in found})
    ]
    steps = [key | {k: v for k, v in of.items() if isinstance(v, int | float)} for of in run.lines]
    return about, evaluations, steps


def _about(run: Run, varied: Row) -> Row:
    """Say what the run is, with its values of the keys that vary, and what it ran on at last."""
    config, seconds = run.config, run.points[max(run.points)]
    attempt: Row = run.attempts[-1] if run.attempts else {}
    # CPU seconds of the training; where they were not recorded, or on a GPU, there is no share
    cpu = sum(v for line in run.lines for k, v in line.items() if k.startswith("cpu_seconds/"))
    hardware = config.hardware
    shared = cpu and seconds and hardware.device == "cpu"
    versions = {name: v for name, v in attempt.get("packages", {}).items() if v}
    return {
        "arm": config.arm_name(),
        "rule": "all" if config.nm.n == config.nm.m else config.sampler.rule,
        "n": config.nm.n, "m": config.nm.m, **varied, "settings": settings(run.identity),
        "prompts": config.prompts_per_step * config.nm.groups,  # groups of n rollouts per step
        "state": run.state, "train_seconds": seconds,
        "budget_seconds": config.budget.train_seconds, "max_steps": config.budget.max_steps,
        "clock": config.budget.clock_text(),
        "machine": checks.machine_of(attempt, config), "device": hardware.device,
        "cpu_share": cpu / seconds if shared else np.nan,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": attempt.get("commit"), "changes": "; ".join(run.changes),
        "folder": str(run.store.folder),
    }  # fmt: skip


def _study(name: str, runs: Sequence[Rows], **known: Any) -> Study:
    """Make the tables of a study from the rows of its runs; `known` are its other fields."""
    evaluations, steps = ([row for run in runs for row in run[table]] for table in (1, 2))
    if not evaluations:
        raise ValueError(f"{name}: no evaluation to read")
    about = pd.DataFrame([of_run for of_run, _, _ in runs])
    return Study(
        name=name,
        runs=about,
        evaluations=pd.DataFrame(evaluations).dropna(axis=1, how="all"),
        steps=pd.DataFrame(steps) if steps else pd.DataFrame(columns=[*KEY, "step"]),
        machines=sorted(set(about.machine)),
        clock=about.clock.iloc[0],
        **known,
    )
