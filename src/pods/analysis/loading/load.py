"""Load a study from its run folders, or from imported logs, and check it."""

import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from pods.analysis.loading.consistency import inconsistencies
from pods.analysis.loading.faults import Fault, faults
from pods.analysis.loading.imports import read_import
from pods.analysis.loading.run_reader import Row, Run, open_run
from pods.analysis.loading.run_rows import run_rows
from pods.analysis.loading.series_names import (
    have_own_starts,
    place,
    series_names,
    varied,
    without_start,
)
from pods.analysis.loading.study import KEY, Study
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.history import clocks
from pods.runs.identity import SOURCES
from pods.runs.plan import read_plans
from pods.runs.store import RunStore, run_folders
from pods.system.text import short

MISSING = "missing (the sweep's command makes a run and its evaluations, --allow leaves it out):"
INCONSISTENT = "inconsistent (--allow accepts it, study=NAME keeps runs apart):"
OWN_STARTS = "Each seed has a start policy of its own."


@dataclass(frozen=True)
class _Opened:
    """The runs of a study, by what can be done with them."""

    runs: list[Run]  # in the order of their curves
    set_aside: list[Run]  # they failed or never began
    unreadable: list[str]  # why the others cannot be read
    whole: list[dict[str, Any]]
    """The identities of all runs in the study's folder, also of those that are not loaded."""
    own_starts: bool
    """Each seed of the whole has its own start policy, so that it tells no curves apart."""


@dataclass(frozen=True)
class _NamedRun:
    """A run, the name of its curve, and its values of the keys that vary in the study."""

    run: Run
    series: str
    varied: Row

    @property
    def label(self) -> str:
        return _label(self.series, self.run)

    @property
    def folder(self) -> Path:
        return self.run.store.folder

    @cached_property
    def faults(self) -> list[Fault]:
        return list(faults(self.run, self.label))


@dataclass(frozen=True)
class _Checked:
    """The runs that are checked, and what is wrong with the study."""

    runs: list[_NamedRun]
    kept: list[_NamedRun]  # without duplicates
    missing: list[str]
    differences: list[str]


def load(folder: Path, folders: Sequence[Path], allow: bool = False, priced: bool = False) -> Study:
    """Read a study and check that it is complete and consistent.

    A run that failed or never began is left out and named.

    Args:
        folder: the study's folder.
        folders: the folders of its runs; none: the study consists of imported logs.
        allow: leave out what else is missing or damaged, accept runs of several machines or
            versions, and report both.
        priced: the clock will be made by prices, so that runs of several machines agree.

    `ValueError`: something is missing, or machines, versions or data differ, and that is
    not allowed; the message names each. Nothing is left, or imported logs are damaged.
    """
    if not folders:
        return read_import(folder).study(folder.name)

    opened = _open(folder, folders)
    plans = read_plans(folder)
    may_stop = bool(plans) and plans[-1].plan.stop == "decided"
    checked = _check(opened, priced, may_stop)
    if not allow:
        _refuse(opened, checked)
    return replace(_study(folder, opened, checked, priced), plans=plans)


def _open(study: Path, folders: Sequence[Path]) -> _Opened:
    """Read these runs of a study, and put them into the order of their curves."""
    whole = list(_identities(study))
    own_starts = have_own_starts(whole)
    opened = _Opened([], [], [], whole, own_starts)
    for folder in folders:
        try:
            run = open_run(folder)
        except ValueError as error:
            opened.unreadable.append(str(error))
            continue
        if own_starts:
            run = replace(run, identity=without_start(run.identity))
        if run.state == "failed" or _never_began(run):
            opened.set_aside.append(run)
        else:
            opened.runs.append(run)

    for runs in (opened.runs, opened.set_aside):
        runs.sort(key=lambda run: (place(run.identity), run.config.seed))
    return opened


def _identities(study: Path) -> Iterator[dict[str, Any]]:
    """Yield the identities of all runs in a study's folder that can be read."""
    for folder in run_folders(study):
        with suppress(*READ_ERRORS):
            yield RunStore(folder).identity()


def _never_began(run: Run) -> bool:
    """Return whether a run has nothing but its config."""
    return run.state == "pending" and not clocks(run.store)


def _label(series: str, run: Run) -> str:
    return f"{series} seed {run.config.seed}"


def _named(runs: Sequence[Run]) -> list[_NamedRun]:
    pairs = [(run.config, run.identity) for run in runs]
    return [
        _NamedRun(run, name, values)
        for run, name, values in zip(runs, series_names(pairs), varied(pairs), strict=True)
    ]


def _why_set_aside(run: Run) -> str:
    """Say why a run is left out, and which commands change that."""
    label = _label(run.config.series_label(), run)
    remove = f"`pods clean {shlex.quote(str(run.store.folder))} --yes` removes it"
    if run.state == "failed":
        unless = ""
        if any(name in run.identity for name in SOURCES.values()):
            unless = " unless its function has changed since"
        return f"{label} failed: its command with retry=failed runs it again{unless}, {remove}"
    return f"{label} never began: its command runs it, {remove}"


def _check(opened: _Opened, priced: bool, may_stop: bool) -> _Checked:
    """Name everything that is missing, twice there or different, apart from runs set aside.

    An arm may have stopped, so that it lacks only seeds below its last one.
    """
    runs = _named(opened.runs)
    duplicates = _duplicates(runs)
    missing = list(opened.unreadable)
    if not opened.unreadable:  # it may be those
        missing += _missing_seeds(runs, opened.set_aside, may_stop)
    missing += duplicates.values()
    for named in runs:
        missing += [str(fault) for fault in named.faults]

    differences = inconsistencies(opened.runs, [named.label for named in runs], priced)
    kept = [named for named in runs if named.folder not in duplicates]
    return _Checked(runs, kept, missing, differences)


def _missing_seeds(
    runs: Sequence[_NamedRun], set_aside: Sequence[Run], may_stop: bool
) -> list[str]:
    """Name the seeds that one series has and another one lacks, also as a run that is set aside."""
    series = {place(named.run.identity): named.series for named in runs}
    present = {named.label for named in runs}
    for run in set_aside:
        present.add(_label(series.get(place(run.identity), ""), run))

    missing = []
    seeds = sorted({named.run.config.seed for named in runs})
    last = {named.series: named.run.config.seed for named in runs}  # by seed within a series
    for name, seed in itertools.product(series.values(), seeds):
        label = f"{name} seed {seed}"
        stopped = may_stop and seed > last[name]
        if label not in present and not stopped:
            missing.append(f"{label}: never run")
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


def _refuse(opened: _Opened, checked: _Checked) -> None:
    """Raise a `ValueError` that lists what is missing and what differs, if anything is."""
    lines = []
    if checked.missing:
        lines += [MISSING, *short(checked.missing)]
        if not opened.unreadable and not opened.set_aside:
            lines += _how_to_remove_odd_one(checked.runs)
    if checked.differences:
        lines += [INCONSISTENT, *short(checked.differences)]
    if lines:
        raise ValueError("\n".join(lines))


def _how_to_remove_odd_one(runs: Sequence[_NamedRun]) -> list[str]:
    """Say how to remove the run that alone has no second one in its series."""
    counts = Counter(named.series for named in runs)
    alone = [named for named in runs if counts[named.series] == 1]
    if len(alone) != 1 or len(runs) < 3:
        return []
    folder = shlex.quote(str(alone[0].folder))
    return [f"one run is alone: `pods clean {folder} --yes` removes it"]


def _study(folder: Path, opened: _Opened, checked: _Checked, priced: bool) -> Study:
    """Make the tables of all runs that are kept."""
    missing = [_why_set_aside(run) for run in opened.set_aside]
    missing += checked.missing
    rows = []
    evaluations = []
    steps = []
    for named in checked.kept:
        made = run_rows(named.run, named.series, named.varied, named.faults)
        rows.append(made.about)
        evaluations += made.evaluations
        steps += made.steps
    if not evaluations:
        raise ValueError("\n".join([f"{folder.name}: no evaluation to read", *short(missing)]))

    runs = pd.DataFrame(rows)
    budgets = dict.fromkeys(run.config.budget.text() for run in opened.runs)
    return Study(
        name=folder.name,
        runs=runs,
        evaluations=pd.DataFrame(evaluations).dropna(axis=1, how="all"),
        steps=pd.DataFrame(steps) if steps else pd.DataFrame(columns=[*KEY, "step"]),
        machines=sorted(set(runs.machine)),
        budget=" | ".join(budgets),
        missing=missing,
        inconsistencies=checked.differences,
        order=_order(opened, checked.runs),
        note=OWN_STARTS if opened.own_starts else "",
        varied=list(checked.kept[0].varied),
        own_starts=opened.own_starts,
        seeds=sorted({run.config.seed for run in (*opened.runs, *opened.set_aside)}),
    )


def _order(opened: _Opened, runs: Sequence[_NamedRun]) -> list[str]:
    """List the curves of a study's folder in their order; one that is not loaded has no name."""
    names = {place(named.run.identity): named.series for named in runs}
    for identity in opened.whole:
        curve = without_start(identity) if opened.own_starts else identity
        names.setdefault(place(curve), "")
    return [names[key] for key in sorted(names)]
