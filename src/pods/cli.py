"""`pods VERB`: everything but training. No verb loads torch unless it needs a model."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods import fetch, fetch_published, verbs
from pods.config import FILE_NAME, FILE_NAME_FORM
from pods.console import plain_console
from pods.runs.clean import clean, removable
from pods.runs.home import home
from pods.runs.status import format_statuses, statuses
from pods.runs.store import RunStore
from pods.trouble import explain
from pods.validate import ConfigError

REMOVABLE_STATES = ("pending", "preempted", "lost", "failed", "done")
RELEASES = ("gsm8k", "math", "llama", "h100s", "a100s")
WATCH_SECONDS = 2.0


@plain_console()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return 0 if all is well, 1 if runs or a machine are not, 2 for bad input.

    75 is trouble of the machine, such as a full disk: the same command again, once it is mended.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args([word for word in words if word != "--debug"])
    try:
        _check_names(options)
        return VERBS[options.verb](options)
    except BrokenPipeError:  # `pods status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except Exception as error:
        return explain(error, "--debug" in words)


def _check_names(options: argparse.Namespace) -> None:
    """See that what is to name a study does, and leads nowhere else.

    Raises:
        ConfigError: it does not.
    """
    for option in ("study", "named", "overlay", "source"):
        name = getattr(options, option, None)
        if name is not None and not re.fullmatch(FILE_NAME, name):
            raise ConfigError("study", name, f"must be {FILE_NAME_FORM}")


def _parser() -> argparse.ArgumentParser:
    """The verbs and what each takes."""
    parser = argparse.ArgumentParser(
        prog="pods", description=__doc__, epilog="--debug: where an error comes from"
    )
    add = parser.add_subparsers(dest="verb", required=True).add_parser
    place, study, figure, words = (argparse.ArgumentParser(add_help=False) for _ in range(4))
    place.add_argument("--runs-dir", type=Path, default=Path("runs"))
    study.add_argument("study", nargs="?", default="default", help="name of the study's folder")
    figure.add_argument("--allow-missing", action="store_true", help="leave out what is not there")
    figure.add_argument("--allow-mixed", action="store_true", help="runs that are not alike")
    words.add_argument("words", nargs="*", metavar="KEY=VALUE", help="as for run.py")
    of_study, of_figure = [study, place], [study, place, figure]

    status = add("status", parents=of_study, help="a line a run")
    status.add_argument("--json", action="store_true")
    status.add_argument("--watch", action="store_true", help="until nothing runs any more")
    clean = add("clean", parents=of_study, help="list what can go; --yes removes it")
    clean.add_argument("--state", action="append", default=[], choices=REMOVABLE_STATES,
                       help="whole runs in this state, with all their results")  # fmt: skip
    clean.add_argument("--yes", action="store_true", help="remove, do not only list")
    again = add("evaluate", parents=of_study, help="what is missing or damaged")
    again.add_argument("--jobs", type=int, help="runs at a time; default: as a sweep")
    add("aggregate", parents=of_figure, help="check, then curves and tables as CSV")
    plot = add("plot", parents=of_figure, help="the same, and the figures")
    plot.add_argument("--overlay", metavar="STUDY",
                      help="draw its accuracy over this one's; both by the authors' grader "
                      "if one is imported and both have it")  # fmt: skip
    plot.add_argument("--all", action="store_true", help="also form, length, reward, phases, the "
                      "authors' grader")  # fmt: skip
    compare = add("compare", parents=[place, figure], help="which arm is better?")
    compare.add_argument("arms", nargs="*", metavar="ARM", help="the first against each other one")
    compare.add_argument("--study", default="default", help="name of the study's folder")
    compare.add_argument("--target", type=float, action="append", help="accuracy to time")
    _add_plan(add("plan", parents=of_figure, help="what do steps and sweeps cost?"))
    add("report", parents=of_figure, help="one HTML page of a study")
    published = add("import-published", parents=[place], help="the authors' logs")
    published.add_argument("folder", type=Path)
    published.add_argument("--study", default="published", help="name of the study's folder")
    published.add_argument("--family", choices=RELEASES, help="where the folder has several")
    published.add_argument("--dataset", help="test set; default: the one trained for")
    published.add_argument("--allow-missing", action="store_true", help="leave out irregular runs")
    sync = add("sync", parents=of_study, help="W&B runs from the runs' own files")
    sync.add_argument("--offline", action="store_true", help="as folders for `wandb sync`")
    sync.add_argument("--dashboard", action="store_true", help="and a W&B view of the study")
    get = add("fetch", help="weights, where there is no model hub; published logs")
    get.add_argument("what", choices=[*fetch.MODELS, "published"])
    add("doctor", parents=[words], help="is this machine fit for a run?")
    measure = add("calibrate", parents=[words], help="which engine suits it best?")
    measure.add_argument("--out", type=Path, default=Path("calibration"), help="folder")
    measure.add_argument("--seconds", type=float, default=300.0, help="most that a mode may take")
    return parser


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.add_argument("--nm", action="append", default=[], metavar="N,M", help="to predict")
    plan.add_argument("--seconds", type=float, help="training clock of a run")
    plan.add_argument("--steps", type=int, help="of a run, instead of seconds")
    plan.add_argument("--seeds", type=int, help="of the sweep; default: as many as the study has")
    plan.add_argument("--jobs", type=int, help="runs at a time; default: one a core")
    plan.add_argument("--published", action="store_true", help="the authors' L40S, not a study")
    plan.add_argument("--study", dest="named", metavar="STUDY", help="as the first word")
    plan.add_argument("--hardware", metavar="NAME", help="price the preset of the study's name on "
                      "it, before it has run")  # fmt: skip
    plan.add_argument("--from", dest="source", metavar="STUDY", help="whose steps a price takes; "
                      "default: the authors' where they are of the same")  # fmt: skip
    plan.add_argument("--tokens", type=int, help="a completion; for floors; default: the longest")
    plan.add_argument("--gpus", metavar="N,...", help="wall time on so many; default: 1,8,64,512")
    plan.add_argument("--failures", type=float, metavar="RATE", help="a GPU-hour; default: none")
    plan.add_argument("--restart", type=float, metavar="MINUTES",
                      help="until GPUs are back after a failure; default: 10")  # fmt: skip


def _runs(options: argparse.Namespace) -> list[Path]:
    """The run folders of a study.

    Raises:
        ValueError: it has none, or is somebody else's logs.
    """
    folder, runs = verbs.study_of(options)
    if not runs:
        raise ValueError(f"study={options.study}: {folder} holds imported logs, no runs")
    return runs


def _status(options: argparse.Namespace) -> int:
    rows = statuses(_runs(options), memory=options.json)
    if options.watch:
        rows = _watch(options, rows)
    print(json.dumps(rows, indent=1) if options.json else format_statuses(rows))
    return 1 if any(row["state"] in ("failed", "lost") or row["error"] for row in rows) else 0


def _watch(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Show the table anew until no run is running, or Ctrl-C.

    Twice in a row, since a sweep's next job takes a moment to begin.
    """
    from pods.board import Board

    idle = 0
    with Board(len(rows)) as board, suppress(KeyboardInterrupt):
        while idle < 2:
            board.draw(format_statuses(rows))
            time.sleep(WATCH_SECONDS)
            rows = statuses(_runs(options), memory=options.json)
            idle = 0 if any(row["state"] == "running" for row in rows) else idle + 1
    return rows


def _clean(options: argparse.Namespace) -> int:
    folder = Path(options.runs_dir / options.study)
    if not folder.is_dir():
        _runs(options)  # says which studies there are
    total, find = 0, clean if options.yes else removable
    for item in dict.fromkeys(find(folder, options.state)):
        amount = "kept" if item.kept else f"{item.bytes / 1e6:.2f} MB"
        print(f"{amount:>13}  {item.path}  ({item.why})")
        total += item.bytes
    size = f"{total / 1e6:.2f} MB"
    print(f"removed: {size}" if options.yes else f"{size} can go; --yes removes it")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from pods.repair import repair

    return repair(_runs(options), options.jobs)


def _sync(options: argparse.Namespace) -> int:
    from pods.runs.wandb_sync import sync

    if options.offline and options.dashboard:
        raise ValueError("--dashboard: W&B's server keeps it; not with --offline")
    runs = _runs(options)
    for line in sync(runs, options.offline):
        print(line)
    if options.dashboard:
        from pods.runs.dashboard import save

        print(save(RunStore(runs[0]).config()))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    if options.what == "published":
        folder = home() / "published"
        fetch_published.published(folder)
        print(f"published: {folder} (`pods import-published {folder} --family gsm8k`)")
        return 0
    folder = home() / "models" / options.what
    getattr(fetch, options.what)(folder)
    print(f"{options.what}: {folder} (model={options.what} finds it there)")
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
    "evaluate": _evaluate,
    "aggregate": verbs.aggregate,
    "plot": verbs.plot,
    "compare": verbs.compare,
    "plan": verbs.plan,
    "report": verbs.report,
    "import-published": verbs.import_published,
    "sync": _sync,
    "fetch": _fetch,
    "doctor": _doctor,
    "calibrate": _calibrate,
}


if __name__ == "__main__":
    sys.exit(main())
