"""`pods report`: one HTML page about a study."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import add_prices_option, add_study_options, prices_of
from pods.runs.find import find_study


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, allow=True)
    add_prices_option(parser)


def run(options: Namespace) -> None:
    """Write the page, and print where."""
    from pods.analysis.draw import read_tables, write_tables
    from pods.analysis.loading.filter import StudyFilter
    from pods.analysis.report import write_report

    chosen = StudyFilter(prices=prices_of(options))
    folder, runs = find_study(options.study, options.runs_dir)
    read = read_tables(folder, runs, chosen, options.allow)
    path = write_tables(folder, runs, chosen, read) / "report.html"
    write_report(read.study, read.tables, path, read.planned)
    print(f"report: {path}")
