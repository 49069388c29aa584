"""`pods compare`: compare arms statistically, or rank them."""

from argparse import ArgumentParser, Namespace

from pods.cli.options import (
    add_filter_options,
    add_latex_option,
    add_study_options,
    filter_of,
)
from pods.config.parse import ConfigError
from pods.runs.find import find_study


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    arms = "arms to compare, the first with each other one (default: all with the GRPO arm)"
    add("arms", nargs="*", metavar="ARM", help=arms)
    add_study_options(parser, allow=True, word="")
    add_filter_options(parser)
    add_latex_option(parser)
    target = "accuracy whose time to reach is compared (may be repeated)"
    add("--target", dest="targets", type=float, action="append", metavar="X", help=target)
    add("--by", choices=("mean", "final"), help="rank the arms first, by mean or final accuracy")


def run(options: Namespace) -> None:
    """Print sentences, tables and caveats, and write them as CSV and JSON."""
    from pods.analysis.compare.tables import compare_study

    chosen = filter_of(options)
    if options.arms and (chosen.arms or chosen.baseline):
        raise ConfigError("arms", " ".join(options.arms), "must be given once, as words or options")

    folder, runs = find_study(options.study, options.runs_dir)
    lines = compare_study(
        folder,
        runs,
        chosen,
        options.allow,
        arms=options.arms,
        targets=options.targets,
        by=options.by,
        latex=options.latex,
    )
    for line in lines:
        print(line)
