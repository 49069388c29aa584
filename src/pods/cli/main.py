"""The entry point of `pods`: parse the command line, execute one verb, return its exit code."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pods.cli import (
    advise,
    check_data,
    evaluate_checkpoint,
    export,
    fetch,
    generate,
    gradient_probe,
    plan,
)
from pods.cli import study_verbs as verbs
from pods.cli.parser import make_parser
from pods.config.key import FILE_NAME
from pods.config.parse import ConfigError
from pods.config.schema import CONF
from pods.runs.clean import clean
from pods.runs.paths import pods_home
from pods.runs.status import format_statuses, statuses
from pods.runs.store import RunStore
from pods.system.console import PrintableStream, printable_console
from pods.system.errors import BAD_INPUT, explain, print_error

MOVED = {"calibrate": "python experiments/benchmarks/calibrate.py"}
TRAINING: dict[str, list[str]] = {"run": [], "sweep": ["-m"]}
OF_SENTENCES = ("aggregate", "plot", "compare", "rank", "plan", "advise")
"""Verbs whose output is wrapped on a narrow terminal."""
STUDY_IS_A_WORD = ("status", "clean", "evaluate", "aggregate", "plot", "rank", "report", "sync")
WATCH_SECONDS = 2.0


@printable_console()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code.

    The codes are 0 for success, 1 if runs or the machine are not well, 2 for bad input, and 75 for
    a temporary failure such as a full disk. No verb loads torch unless it needs a model.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    if typed and typed[0] in MOVED:
        print_error(f"`pods {typed[0]}` has moved: run {MOVED[typed[0]]}")
        return BAD_INPUT
    if typed and typed[0] in TRAINING:
        _train(typed)
    words = [argument for argument in typed if argument != "--debug"]
    options = make_parser().parse_args(_study_as_word(words))
    try:
        if isinstance(sys.stdout, PrintableStream):
            sys.stdout.wraps = options.verb in OF_SENTENCES
        _take_folder(options)
        _check_names(options)
        return VERBS[options.verb](options)
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except Exception as error:
        return explain(error, "--debug" in typed)


def _train(typed: Sequence[str]) -> NoReturn:
    """Become `run.py`, which stands beside `conf/` in a clone and in an installed package."""
    file = next(
        path for path in (CONF.parent / "src/run.py", CONF.parent / "run.py") if path.is_file()
    )
    os.execv(sys.executable, [sys.executable, str(file), *TRAINING[typed[0]], *typed[1:]])


def _study_as_word(words: Sequence[str]) -> list[str]:
    """Take `--study NAME` also where the study is a word of its own.

    >>> _study_as_word(["report", "--study", "first"]), _study_as_word(["status", "--study=a"])
    (['report', 'first'], ['status', 'a'])
    """
    if not words or words[0] not in STUDY_IS_A_WORD:
        return list(words)
    text = [word.removeprefix("--study=") for word in words]
    return [word for word in text if word != "--study"]


def _take_folder(options: argparse.Namespace) -> None:
    """Let a study be named by its folder too, as the shell completes it."""
    folder = Path(getattr(options, "study", None) or "")
    if _names_a_run(options):
        return
    if len(folder.parts) > 1 and folder.is_dir():
        options.runs_dir, options.study = folder.parent, folder.name


def _names_a_run(options: argparse.Namespace) -> bool:
    """Return whether the word for a study names a run: with the options for one checkpoint."""
    return options.verb == "evaluate" and evaluate_checkpoint.is_asked_for(options)


def _check_names(options: argparse.Namespace) -> None:
    """Check that each name of a study is a file name, so that it leads to no other folder.

    Raises:
        ConfigError: a name is not allowed.
    """
    for option in ("study", "named", "overlay", "source"):
        name = None if _names_a_run(options) else getattr(options, option, None)
        if name is not None and not re.fullmatch(FILE_NAME.pattern, name):
            raise ConfigError("study", name, f"must be {FILE_NAME.description}")


def _runs(options: argparse.Namespace) -> list[Path]:
    """Return the run folders of a study.

    Raises:
        ValueError: it has none, or consists of imported logs.
    """
    folder, runs = verbs.study_of(options)
    if not runs:
        raise ValueError(f"study={options.study}: {folder} has imported logs, no runs")
    return runs


def _status(options: argparse.Namespace) -> int:
    rows = statuses(_runs(options), memory=options.json)
    if options.watch:
        rows = _watch(options, rows)
    print(json.dumps(rows, indent=1) if options.json else format_statuses(rows))
    return 1 if any(row["state"] in ("failed", "lost") or row["error"] for row in rows) else 0


def _watch(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Refresh the table until no run is running twice in a row, or until Ctrl-C.

    A sweep's next job takes a moment to start.
    """
    from pods.launch.live_table import LiveTable

    idle = 0
    with LiveTable(len(rows)) as live_table, suppress(KeyboardInterrupt):
        while idle < 2:
            live_table.draw(format_statuses(rows))
            time.sleep(WATCH_SECONDS)
            rows = statuses(_runs(options), memory=options.json)
            idle = 0 if any(row["state"] == "running" for row in rows) else idle + 1
    return rows


def _clean(options: argparse.Namespace) -> int:
    folder = options.runs_dir / options.study
    if not folder.is_dir():
        _runs(options)  # says which studies there are
    total = 0
    for item in dict.fromkeys(clean(folder, options.state, dry_run=not options.yes)):
        amount = "kept" if item.kept else f"{item.bytes / 1e6:.2f} MB"
        print(f"{amount:>13}  {item.path}  ({item.why})")
        total += item.bytes
    size = f"{total / 1e6:.2f} MB"
    print(f"removed: {size}" if options.yes else f"{size} can be removed; --yes removes it")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    evaluate_checkpoint.check_options(options)
    if options.step is not None:
        return evaluate_checkpoint.evaluate_checkpoint(options)
    from pods.cli.evaluate import evaluate_missing

    return evaluate_missing(_runs(options), options.jobs, options.on, options.sets_path)


def _sync(options: argparse.Namespace) -> int:
    from pods.runs.tracking.sync import sync

    if options.tensorboard and (options.offline or options.dashboard):
        raise ValueError("--tensorboard: cannot be combined with W&B's --offline and --dashboard")
    if options.offline and options.dashboard:
        raise ValueError(
            "--dashboard: needs the W&B server, so it cannot be combined with --offline"
        )
    runs = _runs(options)
    for line in sync(runs, options.offline, options.tensorboard):
        print(line)
    if options.dashboard:
        from pods.runs.tracking.dashboard import save

        print(save(RunStore(runs[0]).config()))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    if options.what == "published":
        folder = pods_home() / "published"
        fetch.published(folder)
        print(f"published: {folder} (`pods import-published {folder} --family gsm8k`)")
        return 0
    folder = pods_home() / "models" / options.what
    getattr(fetch, options.what)(folder)
    print(f"{options.what}: {folder} (model={options.what} finds it there)")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from pods.cli.doctor import doctor

    return 0 if doctor(options.overrides) else 1


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "status": _status,
    "clean": _clean,
    "evaluate": _evaluate,
    "aggregate": verbs.aggregate,
    "plot": verbs.plot,
    "compare": verbs.compare,
    "rank": verbs.rank,
    "plan": plan.plan,
    "advise": advise.advise,
    "report": verbs.report,
    "import-published": verbs.import_published,
    "reproduce": verbs.reproduce,
    "sync": _sync,
    "generate": generate.generate,
    "probe": gradient_probe.probe,
    "export": export.export,
    "fetch": _fetch,
    "check-data": check_data.check_data,
    "doctor": _doctor,
}


if __name__ == "__main__":
    sys.exit(main())
