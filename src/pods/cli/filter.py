"""The options by which `plot` and `compare` choose what they show of a study."""

import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pods.analysis.loading.filter import StudyFilter


def add_filter_options(parser: ArgumentParser) -> None:
    """Declare the choice of what is shown of a study."""
    add = parser.add_argument
    add("--arms", dest="shown", metavar="A,B,...", help="arms to show (default: all)")
    add("--metric", help="accuracy, lenient (authors' grader), format or both")
    add("--x", help="train_seconds or steps")
    add("--until", type=float, metavar="END", help="end of the window, in units of x")
    add("--baseline", metavar="ARM", help="compare with ARM (default: GRPO)")


def filter_of(options: Namespace) -> "StudyFilter":
    """Return the choice that was typed."""
    from pods.analysis.loading.filter import StudyFilter

    # the keys in a curve's name follow a comma and a space
    arms = () if options.shown is None else tuple(re.split(r",(?! )", options.shown))
    names = ("metric", "x", "until", "baseline")
    chosen: dict[str, Any] = {
        name: value for name in names if (value := getattr(options, name)) is not None
    }
    return StudyFilter(arms, **chosen)
