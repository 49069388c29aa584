"""The options by which several verbs name a study, what they show of it, a run or a checkpoint."""

import os
import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pods.analysis.loading.filter import StudyFilter
    from pods.config.price_card import PriceCard


STUDY = "name or folder of a study"
RUN = "folder of a run, or words that name only this one under --runs-dir: 'lr pods seed 0'"


def add_study_options(parser: ArgumentParser, allow: bool = False, word: str = STUDY) -> None:
    """Declare the choice of a study, and with `allow` whether it may have gaps.

    The study follows `--study` or, with help for a `word`, is a word of its own.
    """
    if word:
        parser.add_argument("study", nargs="?", default=SUPPRESS, help=word)
    by_option = "study name (instead of the positional argument)"
    parser.add_argument("--study", default="default", metavar="NAME", help=by_option)
    add_runs_dir_option(parser)

    if allow:
        gaps = "accept missing runs, and runs that differ"
        parser.add_argument("--allow", action="store_true", help=gaps)


def add_runs_dir_option(parser: ArgumentParser) -> None:
    """Declare where the studies are."""
    studies = "folder of all studies (default: runs)"
    parser.add_argument("--runs-dir", type=_path, default=Path("runs"), help=studies)


def _path(typed: str) -> Path:
    """Return a path that was typed; after `=` or in quotes a shell leaves `~` as it is."""
    return Path(os.path.expanduser(typed))


def add_checkpoint_options(parser: ArgumentParser) -> None:
    """Declare the choice of a run and one of its checkpoints."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    step = "step of the checkpoint (default: last)"
    parser.add_argument("--step", default="last", metavar="N", help=step)
    add_runs_dir_option(parser)


def add_filter_options(parser: ArgumentParser) -> None:
    """Declare the choice of what `plot` and `compare` show of a study."""
    add = parser.add_argument
    add("--arms", dest="shown", metavar="A,B,...", help="arms to show (default: all)")
    add("--metric", default="accuracy", help="accuracy, lenient (authors'), format, both, pass@K")
    add("--x", default="train_seconds", help="train_seconds or steps")
    add("--until", type=float, metavar="END", help="end of the window, in units of x")
    add("--baseline", metavar="ARM", help="compare with ARM (default: GRPO)")
    add_prices_option(parser)


def add_prices_option(parser: ArgumentParser) -> None:
    """Declare by which prices steps are timed, instead of the measured time."""
    cards = "time steps by a price card: a name in conf/prices, or a YAML file (default: measured)"
    parser.add_argument("--prices", metavar="NAME|FILE", help=cards)


def add_latex_option(parser: ArgumentParser) -> None:
    """Declare whether tables are also written for a paper."""
    tables = "also write the tables for LaTeX, which needs the package booktabs"
    parser.add_argument("--latex", action="store_true", help=tables)


def prices_of(options: Namespace) -> "PriceCard | None":
    """Return the card that was named, if one was."""
    if options.prices is None:
        return None
    from pods.config.price_card import read_card

    return read_card(options.prices)


def filter_of(options: Namespace) -> "StudyFilter":
    """Return the choice that was typed."""
    from pods.analysis.loading.filter import StudyFilter

    return StudyFilter(
        arms=typed_arms(options.shown),
        metric=options.metric,
        until=options.until,
        baseline=options.baseline,
        x=options.x,
        prices=prices_of(options),
    )


def typed_arms(shown: str | None) -> tuple[str, ...]:
    """Return the arms of the option `--arms`; none: it was not typed.

    >>> typed_arms("pods 64→16, update.lr=0.001,grpo")
    ('pods 64→16, update.lr=0.001', 'grpo')
    """
    if shown is None:
        return ()
    return tuple(re.split(r",(?! )", shown))  # in a curve's name a space follows a comma
