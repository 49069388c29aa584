"""`pods clean`: list the files that a study no longer needs, or one run, and remove them."""

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from pods.cli.options import RUN, add_study_options
from pods.config.parse import ConfigError
from pods.runs.clean import clean
from pods.runs.find import find_run, study_folder
from pods.system.errors import DONE, FAILED

REMOVABLE_STATES = ("pending", "preempted", "lost", "failed", "done")


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, word=f"a study, or a run to remove as a whole: {RUN}")
    state = "only remove runs in this state, including their results"
    parser.add_argument("--state", action="append", choices=REMOVABLE_STATES, help=state)
    weights = "also weights of runs that are done and evaluated; their numbers stay"
    parser.add_argument("--weights", action="store_true", help=weights)
    parser.add_argument("--yes", action="store_true", help="remove the files")


def run(options: Namespace) -> int:
    """Print what can be removed, and with --yes remove it; fail if a run cannot be read."""
    if options.weights and options.state:
        raise ConfigError("--weights", "true", "must be given without --state")
    study, folder = _chosen(options.study, options.runs_dir)
    states = options.state or []
    as_a_whole = folder is not None and not options.weights
    if as_a_whole and not states:
        states = REMOVABLE_STATES

    total = 0
    code = DONE
    for item in clean(study, folder, states, options.weights, dry_run=not options.yes):
        size = item.bytes or 0
        total += size
        print(f"{size / 1e6:>10.2f} MB  {item.path}  ({item.why})")
        if item.bytes is None:
            code = FAILED

    text = f"{total / 1e6:.2f} MB"
    print(f"removed: {text}" if options.yes else f"{text} can be removed; --yes removes it")
    return code


def _chosen(name: str, runs_dir: Path) -> tuple[Path, Path | None]:
    """Return the folder of a study; or the one that a run is in, and that of the run."""
    with suppress(ConfigError):  # words that name a run
        study = study_folder(name, runs_dir)
        if study.is_dir() and not (study / "identity.json").is_file():
            return study, None
    run = find_run(name, runs_dir).folder
    return run.parents[2], run
