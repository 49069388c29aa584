"""`pods evaluate`: make a study's missing or damaged evaluations, or evaluate one checkpoint."""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from pods.cli.options import add_study_options
from pods.config.inputs import missing_packages
from pods.config.parse import ConfigError
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.files import read_lines
from pods.runs.find import find_runs
from pods.runs.history import clocks, evaluation_points
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, FAILED
from pods.system.machine import cause_of_death, python_path


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser)
    one = "one checkpoint of a run, which is named instead of a study as for pods generate"
    add = parser.add_argument_group(one).add_argument
    add("--step", metavar="N", help="step of the checkpoint, or last (default)")
    add("--on", metavar="SET", help="another test set, or a file of JSON lines")
    add("--greedy", action="store_true", help="decode at temperature 0, once")
    add("--repeats", type=int, metavar="K", help="passes (default: as configured)")


def run(options: Namespace) -> int:
    """Evaluate what is missing, or one checkpoint of the run that is named instead of a study."""
    if options.repeats is not None and options.repeats < 1:
        raise ConfigError("--repeats", options.repeats, "must be at least 1")
    if options.step or options.on or options.greedy or options.repeats:
        from pods.cli.one_checkpoint import evaluate_checkpoint

        evaluate_checkpoint(options)
        return DONE
    return evaluate_missing(find_runs(options.study, options.runs_dir))


@lossy_console()
def evaluate_missing(folders: Sequence[Path]) -> int:
    """Make every evaluation of these runs that lacks records, run after run; print what was done.

    Return the exit code: AGAIN where it was stopped or another process executes a run.
    """
    from pods.runs.evaluations import is_complete

    codes, made, runs, count = [DONE], False, 0, 0
    for store in map(RunStore, folders):
        name = f"{store.folder.parent.name}/{store.folder.name}"
        try:
            state = state_of(store)
            if state == "running" or store.is_held():
                print(f"{name}  held by another process; left alone")
                codes.append(AGAIN)
            elif state != "pending" or clocks(store):
                config, (steps, problem) = store.config(), _steps(store, state)
                runs, count = runs + 1, count + len(steps)
                if problem:
                    print(f"{name}  {problem}")
                    codes.append(FAILED)
                if missing := [step for step in steps if not is_complete(store, config, step)]:
                    for absent in missing_packages(config):
                        raise absent
                    print(f"{name}  {len(missing)} evaluations to make", flush=True)
                    made = True
                    codes.append(make(store, missing))
        except READ_ERRORS as error:
            print(f"{name}  cannot be evaluated: {error}")
            codes.append(FAILED)
    if not made:
        readable = " that could be read" if FAILED in codes else ""
        print(f"{runs} runs{readable}, {count} evaluations: nothing is missing")
    return FAILED if FAILED in codes else max(codes)


def make(store: RunStore, steps: Sequence[int]) -> int:
    """Make evaluations of a run in a process of its own, and return the exit code."""
    words = ["-P", "-m", "pods.launch.evaluation", str(store.folder), *map(str, steps)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    code = subprocess.call([sys.executable, *words], env=environment, stdin=subprocess.DEVNULL)
    if code in (DONE, FAILED, AGAIN):
        return code
    print(f"{store.folder}: {cause_of_death(code)}")
    return FAILED


def _steps(store: RunStore, state: str) -> tuple[list[int], str | None]:
    """Return the steps of all evaluations that a run should have, and what its log lacks."""
    from pods.runs.evaluations import due_points

    config, log = store.config(), store.metrics_path.name
    newest = max((clock["step"] for clock in clocks(store).values()), default=-1)
    reached = max(newest, store.status().get("step", 0) if state == "done" else 0)
    lines = read_lines(store.metrics_path)
    try:
        logged = lines[-1]["step"] if lines else 0
        due = due_points(config, lines, ended=state == "done" and logged >= reached)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{log} is damaged: {error!r}") from error
    if state != "done":  # later steps are made again when the run is resumed
        due = {step: seconds for step, seconds in due.items() if step <= newest}
    gap = f"{log} ends at step {logged}, but the run at step {reached}"
    return sorted({*due, *evaluation_points(store)}), gap if logged < reached else None
