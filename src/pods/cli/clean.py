"""`pods clean`: list the files that a study no longer needs, or remove them."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import add_study_options
from pods.runs.clean import clean
from pods.runs.find import find_study, study_folder

REMOVABLE_STATES = ("pending", "preempted", "lost", "failed", "done")


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser)
    state = "also select entire runs in this state, with all their results"
    add = parser.add_argument
    add("--state", action="append", default=[], choices=REMOVABLE_STATES, help=state)
    add("--yes", action="store_true", help="remove the files")


def run(options: Namespace) -> int:
    """Print what can be removed, and with --yes remove it."""
    folder = study_folder(options.study, options.runs_dir)
    if not folder.is_dir():
        find_study(options.study, options.runs_dir)  # says which studies there are
    total = 0
    for path, size, why in clean(folder, options.state, dry_run=not options.yes):
        print(f"{size / 1e6:>10.2f} MB  {path}  ({why})")
        total += size
    whole = f"{total / 1e6:.2f} MB"
    print(f"removed: {whole}" if options.yes else f"{whole} can be removed; --yes removes it")
    return 0
