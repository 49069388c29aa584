"""`pods plot`: a study's figures, and the tables that they show."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import (
    add_filter_options,
    add_latex_option,
    add_study_options,
    filter_of,
)
from pods.runs.find import find_study


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, allow=True)
    add_filter_options(parser)
    parser.add_argument("--tables", action="store_true", help="write the tables alone")
    add_latex_option(parser)
    every = "also draw differences, step costs, n, m, rules, training and selection"
    parser.add_argument("--all", action="store_true", help=every)


def run(options: Namespace) -> None:
    """Write tables and figures, and print the summary."""
    from pods.analysis.draw import draw

    chosen = filter_of(options)
    folder, runs = find_study(options.study, options.runs_dir)
    drawn = "main"
    if options.tables:
        drawn = "none"
    elif options.all:
        drawn = "all"
    for line in draw(folder, runs, chosen, options.allow, drawn, options.latex):
        print(line)
