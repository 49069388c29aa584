"""`pods sync`: create runs of a tracker from the files of runs."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import add_study_options
from pods.runs.find import find_runs

HELP = "create W&B runs from the files of runs"


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser)
    parser.add_argument(
        "--to",
        default="online",
        choices=("online", "offline", "tensorboard", "trackio"),
        help="W&B (default), folders for `wandb sync` without an account, or another tracker",
    )


def run(options: Namespace) -> int:
    """Print a line per run."""
    from pods.runs.tracking.tracker import sync

    for line in sync(find_runs(options.study, options.runs_dir), options.to):
        print(line)
    return 0
