"""What the verbs that read a finished study do; each imports what it needs."""

import gc
import json
import os
from argparse import Namespace
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.runs.environment import command
from pods.runs.files import replace
from pods.runs.store import run_folders

if TYPE_CHECKING:
    from pods.analysis.load import Study
    from pods.analysis.tables import Tables


Verb = Callable[[Namespace], int]


def brief(verb: Verb) -> Verb:
    """Collect no garbage while a verb runs: in two seconds of tables that takes a sixth of them."""

    @wraps(verb)
    def run(options: Namespace) -> int:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return verb(options)
        finally:
            if collecting:
                gc.enable()

    return run


def study_of(options: Namespace, name: str | None = None) -> tuple[Path, list[Path]]:
    """Folder of a study, and those of its runs; none where its logs were imported.

    Raises:
        ValueError: there is no such study.
    """
    name = name or options.study
    folder = Path(options.runs_dir / name)
    runs = run_folders(folder)
    if not runs and not imported(folder):
        there = options.runs_dir.iterdir() if options.runs_dir.is_dir() else []
        names = ", ".join(sorted(p.name for p in there if run_folders(p) or imported(p))) or "none"
        raise ValueError(f"study={name}: no runs in {folder}; studies there: {names}")
    return folder, runs


def imported(folder: Path) -> bool:
    """Say whether a study's folder holds somebody else's logs."""
    return (folder / "imported" / "import.json").is_file()


@brief
def aggregate(options: Namespace) -> int:
    """Curves and tables as CSV."""
    from pods.analysis.study import said

    folder, study, made = _aggregated(options)
    for line in said(study, made):
        print(line)
    print(f"tables: {folder / 'figures'}")
    return 0


@brief
def plot(options: Namespace) -> int:
    """The same, and the figures."""
    from pods.analysis.study import draw

    over = study_of(options, options.overlay) if options.overlay else None
    allowed = (options.allow_missing, options.allow_mixed)
    for line in draw(*study_of(options), *allowed, over, options.all):
        print(line)
    return 0


@brief
def compare(options: Namespace) -> int:
    """The first arm against each of the others, or all pairs."""
    from pods.analysis.comparison.compare import compare
    from pods.analysis.comparison.table import as_json, format_comparison, format_words, tables
    from pods.analysis.load import load
    from pods.analysis.study import figures_of

    folder, runs = study_of(options)
    study = load(folder, runs, options.allow_missing, options.allow_mixed)
    found = compare(study, options.arms or None, options.target or None)
    figures = figures_of(folder)
    for name, table in tables(found).items():
        replace(figures / name, table.to_csv(index=False, float_format="%.6g"))
    about = {"command": command(), **as_json(found)}
    replace(figures / "compare.json", json.dumps(about, indent=1, ensure_ascii=False))
    print(format_comparison(found), format_words(found), f"tables: {figures}/compare.*", sep="\n\n")
    return 0


@brief
def plan(options: Namespace) -> int:
    """What steps and sweeps cost, from finished runs; or a preset's study, before there are any."""
    ours, theirs = ("source", "tokens", "gpus", "failures", "restart"), ("nm", "steps", "jobs")
    for name in theirs if options.hardware else ours:
        if getattr(options, name) not in (None, []):
            word = "not with" if options.hardware else "needs"
            raise ValueError(f"--{name.replace('source', 'from')}: {word} --hardware")
    if options.hardware:
        return _priced(options)
    from pods.analysis.cost.plan import Ask, cell, plan, plan_published
    from pods.analysis.load import load
    from pods.analysis.study import figures_of

    slots = (os.cpu_count() or 1) if options.jobs is None else options.jobs
    ask = Ask(tuple(map(cell, options.nm)), options.seconds, options.steps, options.seeds, slots)
    if options.published:
        print("\n".join(plan_published(ask).lines))
        return 0
    folder, runs = study_of(options, options.named)
    study = load(folder, runs, options.allow_missing, options.allow_mixed)
    made, figures = plan(study, ask), figures_of(folder)
    for name, table in made.tables.items():
        replace(figures / f"plan.{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    print(*study.holes, *study.mixed, *made.lines, f"tables: {figures}/plan.*", sep="\n")
    return 0


def _priced(options: Namespace) -> int:
    from pods.pricing import Ask, counts, lines

    names = ("seeds", "seconds", "tokens", "failures", "restart")
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    given |= {"gpus": options.gpus and counts(options.gpus)}
    chosen = {name: value for name, value in given.items() if value is not None}
    ask = Ask(options.named or options.study, options.hardware, **chosen)
    source = (options.source, *study_of(options, options.source)) if options.source else None
    for line in lines(ask, source):
        print(line)
    return 0


@brief
def report(options: Namespace) -> int:
    """One HTML page of a study."""
    from pods.analysis.comparison.compare import compare
    from pods.analysis.comparison.table import format_comparison
    from pods.analysis.comparison.words import paragraphs
    from pods.analysis.cost.plan import Ask, plan
    from pods.analysis.report import write_report

    folder, study, made = _aggregated(options)
    words, table = ["There is one series, so nothing to compare."], ""
    if study.runs[study.runs.complete].series.nunique() > 1:
        found = compare(study)
        words, table = paragraphs(found).split("\n\n"), format_comparison(found)
    cost = plan(study, Ask(slots=os.cpu_count() or 1)).lines
    path = folder / "figures" / "report.html"
    write_report(study, made, words, table, "\n".join(cost), path)
    print(f"report: {path}")
    return 0


def import_published(options: Namespace) -> int:
    """The PODS authors' logs as a study."""
    from pods.analysis.published.imports import write_import
    from pods.analysis.published.release import read_published

    found = read_published(options.folder, options.family, options.dataset)
    folder = options.runs_dir / options.study
    write_import(found, folder, options.allow_missing, command())
    for line in found.holes:
        print(f"irregular: {line}")
    for series, seconds in found.seconds_per_step.items():
        print(f"{series}: {seconds:.2f} s/step")
    print(f"imported: {folder} (`pods plot {options.study}`, `pods compare --study "
          f"{options.study}`)")  # fmt: skip
    return 0


def _aggregated(options: Namespace) -> "tuple[Path, Study, Tables]":
    from pods.analysis.study import aggregate

    folder, runs = study_of(options)
    return folder, *aggregate(folder, runs, options.allow_missing, options.allow_mixed)
