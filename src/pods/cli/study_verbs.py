"""The verbs that read a finished study; each imports what it needs."""

import dataclasses
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.runs.attempts import command
from pods.runs.files import replace
from pods.runs.paths import pods_home
from pods.runs.store import run_folders

if TYPE_CHECKING:
    from pods.analysis.look import Look
    from pods.analysis.study import Study
    from pods.analysis.tables import Tables
    from pods.analysis.view import View
    from pods.config.clock_model import ClockModel


def study_of(options: Namespace, name: str | None = None) -> tuple[Path, list[Path]]:
    """Return the folder of a study and those of its runs, none where its logs were imported.

    Runs of the studies that `--with` names follow.

    Raises:
        ValueError: there is no such study; or `--with` combines imported logs with runs.
    """
    if name is None and (further := _further(options)):
        found = [study_of(options, one) for one in (options.study, *further)]
        if without := [folder.name for folder, runs in found if not runs]:
            raise ValueError(
                f"with={without[0]}: must have runs, and it has imported logs; "
                "--overlay draws those over a study"
            )
        return found[0][0], [run for _, runs in found for run in runs]
    name = name or options.study
    folder = Path(name) if len(Path(name).parts) > 1 else Path(options.runs_dir / name)
    runs = run_folders(folder)
    if not runs and not imported(folder):
        folders = options.runs_dir.iterdir() if options.runs_dir.is_dir() else []
        names = ", ".join(sorted(p.name for p in folders if run_folders(p) or imported(p)))
        where = folder if folder.is_absolute() else f"{folder} of {Path.cwd()}"
        raise ValueError(f"study={name}: no runs in {where}; studies there: {names or 'none'}")
    return folder, runs


def clock_of(options: Namespace) -> "ClockModel | None":
    """Return the prices that `--clock` names; None: it was not typed.

    Raises:
        ValueError: there are no such prices, or a study's runs do not identify them.
    """
    from pods.config.clock_model import MODELS, read_clock_model

    name = getattr(options, "clock", None)
    if name is None:
        return None
    try:
        if name in MODELS or name.endswith(".json"):
            return read_clock_model(name)
        from pods.analysis.cost.plan import fitted_clock
        from pods.analysis.study import load

        return fitted_clock(load(*study_of(options, name)))
    except ValueError as error:
        which = f"must be {', '.join(MODELS)}, a JSON file of prices, or a study; "
        raise ValueError(f"clock={name}: {which * ('no runs' in str(error))}{error}") from error


def _further(options: Namespace) -> tuple[str, ...]:
    """Return the names or folders of the further studies, each once."""
    typed = getattr(options, "further", None) or ""
    names = dict.fromkeys(name.strip().rstrip("/") for name in typed.split(",") if name.strip())
    return tuple(name for name in names if Path(name).name != options.study)


def imported(folder: Path) -> bool:
    """Return whether a study's folder holds imported logs."""
    return (folder / "imported" / "import.json").is_file()


def aggregate(options: Namespace) -> int:
    """Write curves and tables as CSV."""
    from pods.analysis.draw import summary_lines

    view = view_of(options)
    folder, study, tables = _aggregated(options, view)
    for line in summary_lines(study, tables):
        print(line)
    print(f"tables: {folder / 'figures' / view.folder}")
    return 0


def plot(options: Namespace) -> int:
    """Write tables and figures."""
    from pods.analysis.draw import draw

    view = view_of(options)
    if options.overlay and view.folder:
        raise ValueError(
            "--overlay: draws all arms of one study; cannot be combined with a choice of runs"
        )
    over = study_of(options, options.overlay) if options.overlay else None
    allowed = (options.allow_missing, options.allow_mixed)
    styled = _styled(options)
    if styled and (over or options.all):
        raise ValueError("--overlay and --all: cannot be combined with the look of one figure")
    for line in draw(*study_of(options), *allowed, over, options.all, view, styled):
        print(line)
    return 0


def compare(options: Namespace) -> int:
    """Compare arms: verdicts, tables and caveats, also as CSV and JSON."""
    from pods.analysis.comparison.compare import compare
    from pods.analysis.comparison.formatting import as_json, csv_tables, format_comparison
    from pods.analysis.draw import figures_folder

    if (
        options.study == "default"
        and options.arms
        and run_folders(options.runs_dir / options.arms[-1])
    ):
        options.study = options.arms.pop()  # `pods compare pods grpo my_study`, as people type it
    view = view_of(options)
    if options.arms and (view.arms or view.baseline):
        raise ValueError(
            f"arms={' '.join(options.arms)}: must be given once, as words (the first with each "
            "other one) or by --arms and --baseline"
        )
    folder, study = _of_shares(options, view)
    comparison = compare(study, options.arms, options.target, all_pairs=options.all_pairs)
    figures = figures_folder(folder, view)
    for name, table in csv_tables(comparison).items():
        replace(figures / name, table.to_csv(index=False, float_format="%.6g"))
    about = {"command": command(), **as_json(comparison)}
    replace(figures / "compare.json", json.dumps(about, indent=1, ensure_ascii=False))
    print(format_comparison(comparison, options.verbose))
    print(f"\ntables: {figures}/compare.*")
    return 0


def rank(options: Namespace) -> int:
    """Rank arms from the best, also as CSV and JSON."""
    from pods.analysis.comparison.ranking import criterion, rank
    from pods.analysis.comparison.ranking_text import as_json, format_ranking, warnings
    from pods.analysis.draw import figures_folder

    view, by = view_of(options), criterion(options.by)
    folder, study = _of_shares(options, view)
    ranking = rank(study, by)
    figures = figures_folder(folder, view)
    replace(
        figures / "rank.csv", study.labelled(ranking.table).to_csv(index=False, float_format="%.6g")
    )
    about = {"command": command(), **as_json(ranking, study)}
    replace(figures / "rank.json", json.dumps(about, indent=1, ensure_ascii=False))
    print(format_ranking(ranking, study), *warnings(ranking, study), sep="\n")
    print(f"\ntable: {figures}/rank.csv (JSON beside it)")
    return 0


def _of_shares(options: Namespace, view: "View") -> "tuple[Path, Study]":
    """Load the chosen part of a study, whose metric must be a share: more of it is better.

    Raises:
        ValueError: the metric is none.
    """
    from pods.analysis.study import load
    from pods.analysis.view import METRICS, SHARES, choose

    folder, runs = study_of(options)
    if view.metric in METRICS and view.metric not in SHARES:
        raise ValueError(f"metric={view.metric}: must be a share here: {', '.join(SHARES)}")
    return folder, choose(load(folder, runs, options.allow_missing, options.allow_mixed), view)


def report(options: Namespace) -> int:
    """Write one HTML page on a study."""
    from pods.analysis.comparison.compare import compare
    from pods.analysis.cost.plan import PlanRequest, plan
    from pods.analysis.report import write_report

    folder, study, tables = _aggregated(options, view_of(options))
    several = study.runs[study.runs.complete].series.nunique() > 1
    cost = plan(study, PlanRequest(slots=os.cpu_count() or 1)).lines
    path = folder / "figures" / "report.html"
    write_report(study, tables, compare(study) if several else None, "\n".join(cost), path)
    print(f"report: {path}")
    return 0


def import_published(options: Namespace) -> int:
    """Import the PODS authors' logs as a study."""
    from pods.analysis.published.imports import write_import
    from pods.analysis.published.release import read_published

    published = read_published(options.folder, options.family, options.dataset)
    folder = options.runs_dir / options.study
    write_import(published, folder, options.allow_missing, command())
    for line in published.meta["holes"]:
        print(f"irregular: {line}")
    for series, seconds in published.meta["seconds_per_step"].items():
        print(f"{series}: {seconds:.2f} s/step")
    print(
        f"imported: {folder} (`pods plot {options.study}`, `pods compare --study {options.study}`)"
    )
    return 0


def reproduce(options: Namespace) -> int:
    """Draw figures of the PODS paper from the authors' logs, beside the paper's numbers."""
    from pods.analysis.draw import figures_folder
    from pods.analysis.figures import write
    from pods.analysis.published import reproduce as of_paper
    from pods.analysis.published.imports import unexpected, write_import
    from pods.analysis.published.paper_figures import FIGURES
    from pods.analysis.published.release import read_published
    from pods.analysis.study import check_same_clock, load
    from pods.analysis.study import imported as imported_study

    if options.name is None:
        for figure in FIGURES.values():
            arms = ", ".join(arm.label for arm in figure.arms)
            number = "" if figure.ratio is None else f"; {figure.ratio:.2f} times as fast"
            print(f"{figure.name:10} {figure.title}: {arms}{number}")
        return 0
    if options.name not in (*FIGURES, "all"):
        raise ValueError(f"figure={options.name}: must be one of {', '.join(FIGURES)}, or all")
    folder = options.folder or pods_home() / "published"
    if options.folder is None and not folder.is_dir():
        raise ValueError(f"{folder}: no logs there; run pods fetch published, or name their folder")
    for figure in FIGURES.values() if options.name == "all" else [FIGURES[options.name]]:
        logs = read_published(folder, figure.family)
        if odd := unexpected(logs.meta["holes"]):
            raise ValueError(f"{folder}: {odd[0]} ({len(odd)} such files or runs)")
        study = options.runs_dir / f"published-{figure.family}"
        made = [("the authors' logs", of_paper.published(figure, imported_study(study.name, logs)))]
        if options.study:
            missing_too = (options.allow_missing, options.allow_mixed)
            made += [(options.study, of_paper.own(figure, load(*study_of(options), *missing_too)))]
            check_same_clock(made[0][1].study, made[1][1].study)
        write_import(logs, study, command=command())
        print(f"{figure.title} ({figure.source})")
        for whose, one in made:
            print(*of_paper.irregular(one.study), *of_paper.lines(figure, one, whose), sep="\n")
        drawing = of_paper.drawing(figure, made)
        print(f"figure: {write(drawing, made[0][1].study, figures_folder(study))}\n")
    return 0


def _aggregated(options: Namespace, view: "View") -> "tuple[Path, Study, Tables]":
    from pods.analysis.draw import aggregate

    folder, runs = study_of(options)
    return folder, *aggregate(folder, runs, options.allow_missing, options.allow_mixed, view)


def view_of(options: Namespace) -> "View":
    """Return the choice that was typed; `report` has none."""
    from pods.analysis.view import View

    typed = getattr(options, "chosen_arms", None)
    arms = () if typed is None else tuple(word.strip() for word in typed.split(","))
    names = ("metric", "x", "until", "baseline")
    given: dict[str, Any] = {
        name: value for name in names if (value := getattr(options, name, None)) is not None
    }
    pairs = [typed.partition("=") for typed in getattr(options, "labels", None) or ()]
    if without := [arm for arm, sign, _ in pairs if not sign]:
        raise ValueError(f"label={without[0]}: must be ARM=TEXT")
    labels = {arm: label for arm, _, label in pairs}
    studies = [Path(one).name for one in _further(options)]
    return View(arms, **given, labels=labels, studies=studies, clock=clock_of(options))


def _styled(options: Namespace) -> "tuple[Look, Path | None] | None":
    """Return the look that was typed and the file for it; None if none was."""
    names = ("panel", "width", "band", "title", "style")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    given |= {
        name: _limits(name, typed)
        for name in ("xlim", "ylim")
        if (typed := getattr(options, name)) is not None
    }
    if not given and not options.paper and options.out is None:
        return None
    from pods.analysis.look import DEFAULT, PAPER

    return dataclasses.replace(PAPER if options.paper else DEFAULT, **given), options.out


def _limits(name: str, typed: str) -> tuple[float, float]:
    try:
        low, high = map(float, typed.split(","))
    except ValueError:
        raise ValueError(f"{name}={typed}: must be LOW,HIGH, two numbers") from None
    return low, high
