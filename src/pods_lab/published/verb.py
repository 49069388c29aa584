"""`pods reproduce`: the figures of the PODS paper, from its authors' logs."""

import argparse
from pathlib import Path

from pods.cli.options import add_runs_dir_option
from pods.runs.find import find_study
from pods.runs.paths import pods_home
from pods.system.text import command


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("name", nargs="?", help="figure, or all (default: list them)")
    logs = "folder of the logs (default: they are downloaded)"
    add("folder", nargs="?", type=Path, help=logs)
    add("--study", help="study of your own runs to draw beside them")
    add("--allow", action="store_true", help="accept missing or unequal runs")
    add_runs_dir_option(parser)


def run(options: argparse.Namespace) -> None:
    """Draw figures of the PODS paper, print their numbers, and keep the logs as studies.

    `ValueError`: there is no such figure, or the logs are not those of the release.
    """
    from pods_lab.published.fetch import URL, fetch
    from pods_lab.published.paper_figures import FIGURES

    if options.name is None:
        for figure in FIGURES.values():
            number = "" if figure.ratio is None else f"; {figure.ratio:.2f} times as fast"
            print(f"{figure.name:10} {figure.title}: {', '.join(figure.arms)}{number}")
        return
    if options.name not in (*FIGURES, "all"):
        raise ValueError(f"figure={options.name}: must be one of {', '.join(FIGURES)}, or all")
    folder = options.folder or pods_home() / "published"
    if options.folder is None and not folder.is_dir():
        print(f"downloading {URL} into {folder}")
        fetch(folder)
    names = list(FIGURES) if options.name == "all" else [options.name]
    for name in names:
        _draw(name, folder, options)


def _draw(name: str, folder: Path, options: argparse.Namespace) -> None:
    from pods.analysis.figures.specs import write
    from pods.analysis.loading.load import load
    from pods.analysis.writing import figures_folder
    from pods_lab.published import reproduce
    from pods_lab.published.drawing import drawing
    from pods_lab.published.paper_figures import FIGURES
    from pods_lab.published.release import read_release
    from pods_lab.published.tables import write_import

    figure = FIGURES[name]
    logs = read_release(folder, figure.family)
    study = options.runs_dir / f"published-{figure.family}"
    published = reproduce.published(figure, logs.study(study.name))
    reproductions = {"the authors' logs": published}
    if options.study:
        runs = load(*find_study(options.study, options.runs_dir), options.allow)
        reproductions[options.study] = reproduce.from_own_runs(figure, runs)

    write_import(logs, study, command())
    print(f"{figure.title} ({figure.source})")
    for source, made in reproductions.items():
        text = reproduce.irregular(made.study) + reproduce.lines(figure, made, source)
        print("\n".join(text))
    path = write(drawing(figure, reproductions), published.study, figures_folder(study))
    print(f"figure: {path}\n")
