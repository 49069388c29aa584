"""Load a study from its run folders, or from imported logs, and check it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from pods.analysis.loading.consistency import budget_text, clock_note, inconsistencies
from pods.analysis.loading.faults import Fault, faults
from pods.analysis.loading.imports import read_import
from pods.analysis.loading.run_reader import Row, Run, open_run
from pods.analysis.loading.run_rows import RunRows, run_rows
from pods.analysis.loading.series_names import place, series_names, varied
from pods.analysis.loading.study import KEY, Study
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.history import clocks
from pods.runs.store import RunStore, run_folders

MISSING = "missing (the sweep's command makes a run and its evaluations, --allow leaves it out):"
INCONSISTENT = "inconsistent (--allow accepts it, study=NAME keeps runs apart):"


@dataclass(frozen=True)
class _Opened:
    """The runs of a study, by what can be done with them."""

    runs: list[Run]  # in the order of their curves
    set_aside: list[Run]  # they failed or never began
    unreadable: list[str]  # why the others cannot be read


@dataclass(frozen=True)
class _NamedRun:
    """A run, the name of its curve, and its values of the keys that vary in the study."""

    run: Run
    series: str
    varied: Row

    @property
    def label(self) -> str:
        return f"{self.series} seed {self.run.config.seed}"

    @property
    def folder(self) -> Path:
        return self.run.store.folder

    @cached_property
    def faults(self) -> list[Fault]:
        return list(faults(self.run, self.label))


def load(folder: Path, folders: Sequence[Path], allow: bool = False) -> Study:
    """Read a study and check that it is complete and consistent.

    A run that failed or never began is left out and named.

    Args:
        folder: the study's folder.
        folders: the folders of its runs; none: the study consists of imported logs.
        allow: leave out what else is missing or damaged, accept runs of several machines or
            versions, and report both.

    `ValueError`: something is missing, or budgets, machines, versions or data differ, and that is
    not allowed; the message names each. Nothing is left, or imported logs are damaged.
    """
    if not folders:
        return read_import(folder).study(folder.name)

    opened = _open(folders)
    runs = _named(opened.runs)
    duplicates = _duplicates(runs)
    missing = _missing(opened, runs, duplicates)
    labels = [named.label for named in runs]
    differences = inconsistencies(opened.runs, labels)
    note = clock_note(opened.runs)
    if not allow:
        if missing and not opened.unreadable and not opened.set_aside:
            missing += _how_to_remove_odd_one(runs)
        _refuse(missing, differences)

    set_aside = [_why_set_aside(run) for run in opened.set_aside]
    rows = []
    for named in runs:
        if named.folder not in duplicates:
            rows.append(run_rows(named.run, named.series, named.varied, named.faults))
    evaluations = [row for run in rows for row in run.evaluations]
    if not evaluations:
        raise ValueError("\n".join([f"{folder.name}: no evaluation to read", *set_aside, *missing]))

    about = pd.DataFrame([run.about for run in rows])
    return Study(
        name=folder.name,
        runs=about,
        evaluations=pd.DataFrame(evaluations).dropna(axis=1, how="all"),
        steps=_step_table(rows),
        machines=sorted(set(about.machine)),
        budget=", ".join(dict.fromkeys(budget_text(run.config) for run in opened.runs)),
        missing=[*set_aside, *missing],
        inconsistencies=differences,
        order=_order(folder, {named.series: named.run for named in runs}),
        note=note,
        clock=about.clock.iloc[0],
        varied=list(runs[0].varied),
    )


def _open(folders: Sequence[Path]) -> _Opened:
    """Read all runs, and put them into the order of their curves."""
    opened = _Opened([], [], [])
    for folder in folders:
        try:
            run = open_run(folder)
        except ValueError as error:
            opened.unreadable.append(str(error))
            continue
        if run.state == "failed" or _never_began(run):
            opened.set_aside.append(run)
        else:
            opened.runs.append(run)

    for runs in (opened.runs, opened.set_aside):
        runs.sort(key=lambda run: (place(run.identity), run.config.seed))
    return opened


def _never_began(run: Run) -> bool:
    """Return whether a run has nothing but its config."""
    return run.state == "pending" and not clocks(run.store)


def _named(runs: Sequence[Run]) -> list[_NamedRun]:
    pairs = [(run.config, run.identity) for run in runs]
    return [
        _NamedRun(run, name, values)
        for run, name, values in zip(runs, series_names(pairs), varied(pairs), strict=True)
    ]


def _why_set_aside(run: Run) -> str:
    """Say why a run is left out, and which commands change that."""
    label = f"{run.config.series_label()} seed {run.config.seed}"
    remove = f"`pods clean {run.store.folder} --yes` removes it"
    if run.state == "failed":
        return f"{label} failed: its command with retry=failed runs it again, {remove}"
    return f"{label} never began: its command runs it, {remove}"


def _missing(
    opened: _Opened, runs: Sequence[_NamedRun], duplicates: Mapping[Path, str]
) -> list[str]:
    """Name everything that the study lacks or has twice, apart from runs that are set aside."""
    missing = list(opened.unreadable)
    if not opened.unreadable:  # it may be those
        missing += _missing_seeds(runs, opened.set_aside)
    missing += duplicates.values()
    for named in runs:
        missing += map(str, named.faults)
    return missing


def _missing_seeds(runs: Sequence[_NamedRun], set_aside: Sequence[Run]) -> list[str]:
    """Name the seeds that one series has and another one lacks, also as a run that is set aside."""
    names = {place(named.run.identity): named.series for named in runs}
    seeds = sorted({named.run.config.seed for named in runs})
    present = {(named.series, named.run.config.seed) for named in runs}
    for run in set_aside:
        present.add((names.get(place(run.identity), ""), run.config.seed))

    missing = []
    for name in names.values():
        for seed in seeds:
            if (name, seed) not in present:
                missing.append(f"{name} seed {seed}: never run")
    return missing


def _duplicates(runs: Sequence[_NamedRun]) -> dict[Path, str]:
    """Describe runs of equal series and seed, by folder; one run without contradictions stays."""
    first: dict[str, Path] = {}
    duplicates = {}
    for named in sorted(runs, key=lambda named: bool(named.run.contradictions)):
        kept = first.setdefault(named.label, named.folder)
        if kept != named.folder:
            duplicates[named.folder] = f"{named.label}: duplicate runs ({kept} and {named.folder})"
    return duplicates


def _how_to_remove_odd_one(runs: Sequence[_NamedRun]) -> list[str]:
    """Say how to remove the run that alone has no second one in its series."""
    series = [named.series for named in runs]
    alone = [named for named in runs if series.count(named.series) == 1]
    if len(alone) != 1 or len(runs) < 3:
        return []
    return [f"one run is alone: `pods clean {alone[0].folder} --yes` removes it"]


def _refuse(missing: Sequence[str], differences: Sequence[str]) -> None:
    lines = []
    if missing:
        lines += [MISSING, *missing]
    if differences:
        lines += [INCONSISTENT, *differences]
    if lines:
        raise ValueError("\n".join(lines))


def _step_table(rows: Sequence[RunRows]) -> pd.DataFrame:
    steps = [row for run in rows for row in run.steps]
    return pd.DataFrame(steps) if steps else pd.DataFrame(columns=[*KEY, "step"])


def _order(folder: Path, curves: Mapping[str, Run]) -> list[str]:
    """List the curves of a study's folder in their order; one that is not loaded has no name."""
    names = {place(run.identity): name for name, run in curves.items()}
    for run_folder in run_folders(folder):
        with suppress(*READ_ERRORS):
            names.setdefault(place(RunStore(run_folder).identity()), "")
    return [names[key] for key in sorted(names)]
