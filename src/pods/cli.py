"""`pods VERB`: everything but training. No verb loads torch unless it needs a model."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods import fetch
from pods.board import Board
from pods.runs.clean import clean, removable
from pods.runs.home import home
from pods.runs.status import format_statuses, statuses
from pods.runs.store import run_folders

REMOVABLE_STATES = ("pending", "preempted", "lost", "failed", "done")
WATCH_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return 0 if all is well, 1 if runs or a machine are not, 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        return VERBS[options.verb](options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    """The verbs and what each takes."""
    parser = argparse.ArgumentParser(prog="pods", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    study = argparse.ArgumentParser(add_help=False)
    study.add_argument("study", nargs="?", default="default", help="name of the study's folder")
    study.add_argument("--runs-dir", type=Path, default=Path("runs"))
    figure = argparse.ArgumentParser(add_help=False)
    figure.add_argument("--allow-missing", action="store_true", help="leave out what is not done")
    figure.add_argument("--allow-mixed", action="store_true", help="runs from different machines")
    status = verbs.add_parser("status", parents=[study], help="a line a run")
    status.add_argument("--json", action="store_true")
    status.add_argument("--watch", action="store_true", help="until nothing runs any more")
    clean = verbs.add_parser("clean", parents=[study], help="list what can go; --yes removes it")
    clean.add_argument("--state", action="append", default=[], choices=REMOVABLE_STATES,
                       help="whole runs in this state, with all their results")  # fmt: skip
    clean.add_argument("--yes", action="store_true", help="remove, do not only list")
    verbs.add_parser("aggregate", parents=[study, figure], help="curves and tables as CSV")
    verbs.add_parser("plot", parents=[study, figure], help="the same, and the figure")
    get = verbs.add_parser("fetch", help="weights, where there is no model hub")
    get.add_argument("model", choices=fetch.MODELS)
    words = argparse.ArgumentParser(add_help=False)
    words.add_argument("words", nargs="*", metavar="KEY=VALUE", help="as for run.py")
    verbs.add_parser("doctor", parents=[words], help="is this machine fit for a run?")
    measure = verbs.add_parser("calibrate", parents=[words], help="which engine suits it best?")
    measure.add_argument("--out", type=Path, default=Path("calibration"), help="folder")
    measure.add_argument("--seconds", type=float, default=300.0, help="most that a mode may take")
    return parser


def _study(options: argparse.Namespace) -> Path:
    return Path(options.runs_dir / options.study)


def _runs(options: argparse.Namespace) -> tuple[Path, list[Path]]:
    folder = _study(options)
    runs = run_folders(folder)
    if not runs:
        there = options.runs_dir.iterdir() if options.runs_dir.is_dir() else []
        studies = sorted(path.name for path in there if run_folders(path))
        names = ", ".join(studies) or "none"
        raise ValueError(f"study={options.study}: no runs in {folder}; studies there: {names}")
    return folder, runs


def _status(options: argparse.Namespace) -> int:
    rows = statuses(_runs(options)[1])
    if options.watch:
        rows = _watch(options, rows)
    print(json.dumps(rows, indent=1) if options.json else format_statuses(rows))
    return 1 if any(row["state"] in ("failed", "lost") or row["error"] for row in rows) else 0


def _watch(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Show the table anew until no run is running, or Ctrl-C.

    Twice in a row, since a sweep's next job takes a moment to begin.
    """
    idle = 0
    with Board(len(rows)) as board, suppress(KeyboardInterrupt):
        while idle < 2:
            board.draw(format_statuses(rows))
            time.sleep(WATCH_SECONDS)
            rows = statuses(_runs(options)[1])
            idle = 0 if any(row["state"] == "running" for row in rows) else idle + 1
    return rows


def _clean(options: argparse.Namespace) -> int:
    if not _study(options).is_dir():
        _runs(options)  # says which studies there are
    total, find = 0, clean if options.yes else removable
    for item in find(_study(options), options.state):
        print(f"{item.bytes / 1e6:10.2f} MB  {item.path}  ({item.why})")
        total += item.bytes
    size = f"{total / 1e6:.2f} MB"
    print(f"removed: {size}" if options.yes else f"{size} can go; --yes removes it")
    return 0


def _aggregate(options: argparse.Namespace) -> int:
    from pods.analysis.study import aggregate, format_table

    folder, runs = _runs(options)
    print(format_table(aggregate(folder, runs, options.allow_missing, options.allow_mixed)[2]))
    print(f"tables: {folder / 'figures'}")
    return 0


def _plot(options: argparse.Namespace) -> int:
    from pods.analysis.study import draw

    for line in draw(*_runs(options), options.allow_missing, options.allow_mixed):
        print(line)
    return 0


def _fetch(options: argparse.Namespace) -> int:
    folder = home() / "models" / options.model
    getattr(fetch, options.model)(folder)
    print(f"{options.model}: {folder} (model={options.model} finds it there)")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from pods.doctor import doctor

    return 0 if doctor(options.words) else 1


def _calibrate(options: argparse.Namespace) -> int:
    from pods.calibrate import calibrate

    return 0 if calibrate(options.words, options.out, options.seconds) else 1


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "status": _status,
    "clean": _clean,
    "aggregate": _aggregate,
    "plot": _plot,
    "fetch": _fetch,
    "doctor": _doctor,
    "calibrate": _calibrate,
}


if __name__ == "__main__":
    sys.exit(main())
