"""The entry point of `pods`: parse the command line, execute one verb, return its exit code."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pods.cli import run
from pods.system.console import prepare_console
from pods.system.errors import explain

VERBS = {
    **{verb: f"pods.cli.{verb}" for verb in ("run", "status", "evaluate", "plot", "compare")},
    **{verb: f"pods.cli.{verb}" for verb in ("report", "generate", "export", "sync")},
    **{verb: f"pods.cli.{verb}" for verb in ("fetch", "doctor", "clean")},
    **{verb: f"pods_lab.{verb}.verb" for verb in ("plan", "advise", "probe")},
    "audit": "pods_lab.audit.verb",
    "reproduce": "pods_lab.published.verb",
}
"""The module of each verb: `add_options(parser)`, `run(options)`; its docstring is the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code.

    The codes are 0 for success, 1 if runs or the machine are not well, 2 for bad input, and 75 for
    a temporary failure such as a full disk. No verb loads torch unless it needs a model.
    """
    prepare_console()
    typed = sys.argv[1:] if arguments is None else list(arguments)
    words = [word for word in typed if word != "--debug"]
    if words[:1] == ["run"]:
        typed.remove("run")
        run.become(typed)
    try:
        options = _parser(words).parse_args(words)
        return int(import_module(VERBS[options.verb]).run(options))
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except Exception as error:
        return explain(error, "--debug" in typed)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the verb that was typed, or of all where none was."""
    parser = argparse.ArgumentParser(
        prog="pods",
        description="Train, inspect, evaluate, compare and clean up runs.",
        epilog="--debug shows the traceback of an error.",
    )
    add = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser
    for name in words[:1] if words[:1] and words[0] in VERBS else VERBS:
        verb: Any = import_module(VERBS[name])
        about = str(verb.__doc__).partition(": ")[2].strip()
        verb.add_options(add(name, help=about.rstrip("."), description=verb.__doc__))
    return parser


if __name__ == "__main__":
    sys.exit(main())
