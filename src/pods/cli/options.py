"""The options by which several verbs name a study, or a run and one of its checkpoints."""

from argparse import SUPPRESS, ArgumentParser
from pathlib import Path


def add_study_options(parser: ArgumentParser, allow: bool = False, word: bool = True) -> None:
    """Declare the choice of a study, and with `allow` whether it may have gaps.

    The study follows `--study` or, with `word`, is a word of its own.
    """
    if word:
        parser.add_argument("study", nargs="?", default=SUPPRESS, help="name or folder of a study")
    parser.add_argument("--study", default="default", metavar="NAME", help="the same as an option")
    add_runs_dir_option(parser)
    if allow:
        gaps = "accept missing runs, and runs that differ"
        parser.add_argument("--allow", action="store_true", help=gaps)


def add_runs_dir_option(parser: ArgumentParser) -> None:
    """Declare where the studies are."""
    studies = "folder of all studies (default: runs)"
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help=studies)


def add_checkpoint_options(parser: ArgumentParser) -> None:
    """Declare the choice of a run and one of its checkpoints."""
    run = (
        "folder of the run, or words that name only this one under --runs-dir, such as a study, "
        "or 'quickstart pods seed 0'"
    )
    parser.add_argument("run", metavar="RUN", help=run)
    step = "step of the checkpoint (default: last)"
    parser.add_argument("--step", default="last", metavar="N", help=step)
    add_runs_dir_option(parser)
