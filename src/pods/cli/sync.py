"""`pods sync`: create runs of a tracker from the files of runs."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import add_study_options
from pods.runs.find import find_runs


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser)
    to = "W&B (default), folders for `wandb sync` without an account, or another tracker"
    choices = ("online", "offline", "tensorboard", "trackio")
    parser.add_argument("--to", default="online", choices=choices, help=to)


def run(options: Namespace) -> None:
    """Print a line per run."""
    from pods.runs.tracking.tracker import sync

    for line in sync(find_runs(options.study, options.runs_dir), options.to):
        print(line)
