"""The entry point of `pods`: parse the command line, execute one verb, return its exit code."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NoReturn

from pods.system.console import prepare_console
from pods.system.errors import DONE, INTERRUPTED, explain
from pods.system.text import INSTALLED

BUILT_IN = {
    "status": "pods.cli.status",
    "evaluate": "pods.cli.evaluate",
    "plot": "pods.cli.plot",
    "compare": "pods.cli.compare",
    "report": "pods.cli.report",
    "generate": "pods.cli.generate",
    "export": "pods.cli.export",
    "sync": "pods.cli.sync",
    "fetch": "pods.cli.fetch",
    "doctor": "pods.cli.doctor",
    "clean": "pods.cli.clean",
}
"""The module of each verb of this package but `run`.

It has `add_options(parser)`, `run(options)` and a docstring as help. `run` returns the exit code,
or None for 0.
"""
GROUP = "pods.verbs"
"""Entry points by which an installed package adds a verb: its name, and such a module."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb, which loads torch only for a model; return the exit code (`system.errors`)."""
    prepare_console()
    typed = list(sys.argv[1:] if arguments is None else arguments)
    words = [word for word in typed if word != "--debug"]
    if words[:1] == ["run"]:
        typed.remove("run")
        _become_run_py(typed)

    try:
        return _run_verb(words)
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        return explain(error, "--debug" in typed)


def _run_verb(words: Sequence[str]) -> int:
    modules = _modules(words)
    options = _options(words, modules)
    code = import_module(modules[options.verb]).run(options)
    return DONE if code is None else int(code)


def verbs() -> dict[str, str]:
    """Return the module of each verb: those of this package, then those of others by name."""
    modules = dict(BUILT_IN)
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        modules.setdefault(point.name, point.value)  # no package replaces a verb of ours
    return modules


def _modules(words: Sequence[str]) -> Mapping[str, str]:
    """Return the modules of the verbs whose options are needed: the typed one, or all of them."""
    typed = words[0] if words else ""
    if typed in BUILT_IN:  # looking through all installed packages takes a moment
        return {typed: BUILT_IN[typed]}
    modules = verbs()
    if typed in modules:
        return {typed: modules[typed]}
    return modules


def _become_run_py(words: Sequence[str]) -> NoReturn:
    file = INSTALLED if INSTALLED.is_file() else INSTALLED.parents[1] / INSTALLED.name
    # -P: modules beside the script, such as pods/types.py, must not hide those of Python
    os.execv(sys.executable, [sys.executable, "-P", str(file), *words])


def _options(words: Sequence[str], modules: Mapping[str, str]) -> argparse.Namespace:
    """Parse the words by the options of these verbs."""
    parser = argparse.ArgumentParser(
        prog="pods",
        description="Train, inspect, evaluate, compare and clean up runs.",
        epilog="--debug shows the traceback of an error.",
    )
    add = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser
    add("run", help="train one run, or with -m a sweep; takes KEY=VALUE")
    for name, module in modules.items():
        verb: Any = import_module(module)
        about = str(verb.__doc__).partition(": ")[2].strip()
        verb.add_options(add(name, help=about.rstrip("."), description=verb.__doc__))

    options, rest = parser.parse_known_args(words)
    takes_more = hasattr(options, "overrides") and not any(word.startswith("-") for word in rest)
    if rest and not takes_more:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # KEY=VALUE after an option: argparse takes such words from one place
        options.overrides += rest
    return options


if __name__ == "__main__":
    sys.exit(main())
