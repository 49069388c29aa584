"""`pods report`: one HTML page about a study."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import add_study_options
from pods.runs.find import find_study


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, allow=True)


def run(options: Namespace) -> None:
    """Write the page, and print where."""
    from pods.analysis.draw import write_tables
    from pods.analysis.report import write_report

    folder, runs = find_study(options.study, options.runs_dir)
    written = write_tables(folder, runs, allow=options.allow)
    path = written.folder / "report.html"
    write_report(written.study, written.tables, path)
    print(f"report: {path}")
