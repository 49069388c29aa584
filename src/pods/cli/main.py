"""The entry point of `pods`: parse the command line, execute one verb, return its exit code."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from pods.system.console import prepare_console
from pods.system.errors import explain
from pods.system.signals import SIGNALS
from pods.system.text import INSTALLED

OURS = "status evaluate plot compare report generate export sync fetch doctor clean"
VERBS = {
    **{verb: f"pods.cli.{verb}" for verb in OURS.split()},
    **{verb: f"pods_lab.{verb}.verb" for verb in ("plan", "advise", "probe", "audit")},
    "reproduce": "pods_lab.published.verb",
}
"""The module of each verb but `run`, with `add_options(parser)`, `run(options)` and a docstring as
help. `run` returns the exit code, or None for 0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb, which loads torch only for a model; return the exit code (`system.errors`)."""
    prepare_console()
    typed = sys.argv[1:] if arguments is None else list(arguments)
    words = [word for word in typed if word != "--debug"]
    if words[:1] == ["run"]:
        typed.remove("run")
        _become_run_py(typed)
    try:
        options = _options(words)
        return int(import_module(VERBS[options.verb]).run(options) or 0)
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except Exception as error:
        return explain(error, "--debug" in typed)


def _become_run_py(words: Sequence[str]) -> NoReturn:
    file = INSTALLED if INSTALLED.is_file() else INSTALLED.parents[1] / INSTALLED.name
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until it can handle them
    # -P: modules beside the script, such as pods/types.py, must not hide those of Python
    os.execv(sys.executable, [sys.executable, "-P", str(file), *words])


def _options(words: Sequence[str]) -> argparse.Namespace:
    """Parse by the options of the verb that was typed, or of all where none was."""
    parser = argparse.ArgumentParser(
        prog="pods",
        description="Train, inspect, evaluate, compare and clean up runs.",
        epilog="--debug shows the traceback of an error.",
    )
    add = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser
    add("run", help="train one run, or with -m a sweep; takes KEY=VALUE")
    for name in words[:1] if words[:1] and words[0] in VERBS else VERBS:
        verb: Any = import_module(VERBS[name])
        about = str(verb.__doc__).partition(": ")[2].strip()
        verb.add_options(add(name, help=about.rstrip("."), description=verb.__doc__))
    options, more = parser.parse_known_args(words)
    if any(word.startswith("-") for word in more) or (more and not hasattr(options, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if more:  # KEY=VALUE after an option: argparse takes such words from one place
        options.overrides += more
    return options


if __name__ == "__main__":
    sys.exit(main())
