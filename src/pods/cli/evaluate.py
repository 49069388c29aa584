"""`pods evaluate`: make a study's missing or damaged evaluations, or evaluate one checkpoint.

One checkpoint may be evaluated on any test set, and its records belong to no run.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec import structs

from pods.cli.options import add_study_options
from pods.config.inputs import missing_packages
from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.config.task_checks import ON_THE_HUB
from pods.runs import files
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.find import find_checkpoint, find_run, find_runs
from pods.runs.history import clocks, evaluation_points
from pods.runs.identity import run_folder
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.console import lossy_console
from pods.system.errors import AGAIN, DONE, FAILED
from pods.system.machine import cause_of_death, python_path, set_threads
from pods.system.text import command

if TYPE_CHECKING:
    from pods.types import Task

FOLDER = "evaluated"
"""Folder in the study's, beside the runs; in the working folder for a run outside of any study."""


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
    if options.repeats is not None and (options.greedy or options.repeats < 1):
        raise ConfigError("--repeats", options.repeats, "must be at least 1, without --greedy")
    if options.step or options.on or options.greedy or options.repeats:
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
    lines = files.read_lines(store.metrics_path)
    try:
        logged = lines[-1]["step"] if lines else 0
        due = due_points(config, lines, ended=state == "done" and logged >= reached)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{log} is damaged: {error!r}") from error
    if state != "done":  # later steps are made again when the run is resumed
        due = {step: seconds for step, seconds in due.items() if step <= newest}
    gap = f"{log} ends at step {logged}, but the run at step {reached}"
    return sorted({*due, *evaluation_points(store)}), gap if logged < reached else None


def evaluate_checkpoint(options: Namespace) -> None:
    """Evaluate, print the accuracy, and write the records, with questions and completions."""
    store = find_run(options.study, options.runs_dir)
    checkpoint = find_checkpoint(store, options.step or "last")
    config = store.config()
    if options.greedy:
        config.evaluation = replace(config.evaluation, temperature=0.0, repeats=1)
    elif options.repeats:
        config.evaluation = replace(config.evaluation, repeats=options.repeats)
    set_threads(config.hardware.threads)
    import numpy as np

    from pods.analysis.numbers.statistics import t_test

    name, task = _task(config, options.on)
    path = _path(store, checkpoint, config, options.on)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # fails now, not when all is answered
    records = list(_answer(config, task, name, checkpoint))
    right = np.array([r["correct"] for r in records]).reshape(config.evaluation.repeats, -1)
    accuracy = t_test(right.mean(0))  # over questions, of each one's mean
    about = {
        "checkpoint": str(checkpoint),
        "test_set": name or config.task.test_label(),
        "repeats": config.evaluation.repeats,
        "temperature": config.evaluation.temperature,
        "accuracy": accuracy.estimate,
        "stderr": accuracy.stderr,
        "questions": right.shape[1],
        "format": fmean(record["format"] for record in records),
        "length": fmean(record["length"] for record in records),
        "command": command(),
    }
    files.replace(path, files.json_lines(records))
    files.replace(path.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False))
    print(
        f"accuracy {accuracy.estimate:.3f} ± {accuracy.stderr:.3f} (standard error over "
        f"{right.shape[1]} questions), format {about['format']:.3f}, length "
        f"{about['length']:.1f} tokens\nrecords: {path} (a summary as JSON beside it)"
    )


def _task(config: Config, on: str | None) -> tuple[str, "Task"]:
    """Return the name of the test set, "" for the run's own, and the task with its questions."""
    from pods.tasks.load import load, load_questions
    from pods.training.evaluate import evaluation_questions

    if on is None:
        task = load(config.task)
        return "", replace(task, test=evaluation_questions(config, task))
    file = Path(on)
    name: Any = file.stem
    if not (file.is_file() or on in ON_THE_HUB):
        raise ConfigError("--on", on, f"must be a file, or one of {', '.join(ON_THE_HUB)}")
    if name in ON_THE_HUB and config.task.name in ("gsm8k", "math"):
        path = on if file.is_file() else None  # a file of its name, or the hub
        known = replace(config.task, test_set=name, test_path=path, malformed="drop")
        for absent in missing_packages(replace(config, task=known)):
            raise absent
        return name, load(known)
    if not file.is_file():
        raise ConfigError("--on", on, f"must be a file: this run was trained on {config.task.name}")
    return name, load_questions(config.task, file)


def _path(store: RunStore, checkpoint: Path, config: Config, on: str | None) -> Path:
    """Return where the records are written: named from the run, the set and the sampling."""
    file, evaluation = Path(on or config.task.test_label()), config.evaluation
    content = f"-{files.sha256(file)[:6]}" if on and file.is_file() else ""  # two files of one name
    sampled = f"t{evaluation.temperature:g}x{evaluation.repeats}"
    how = "greedy" if evaluation.temperature == 0 else sampled
    arm, seed = store.folder.parts[-2:]
    in_study = store.folder.parts[-3:-1] == run_folder(config, {}).parts[-3:-1]
    folder = store.folder.parents[2] / FOLDER if in_study else Path(FOLDER).absolute()
    return folder / f"{arm}-{seed}-{checkpoint.name}-{file.stem[:60]}{content}-{how}.jsonl"


def _answer(config: Config, task: "Task", name: str, checkpoint: Path) -> Iterator[dict[str, Any]]:
    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy.policy import load_policy
    from pods.training.data import fitting
    from pods.training.evaluate import evaluate

    step = int(checkpoint.name.removeprefix("step-"))
    policy = load_policy(config, checkpoint)
    problems, prompts, _ = fitting("test", task.test, policy.tokenizer, config)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    by_id = {problem.id: problem for problem in problems}
    task = replace(task, test=problems)
    for answers in evaluate(config, task, prompts, engine, step, 0, name):
        for record, text in answers:
            problem = by_id[record.question]
            asked = {"asked": problem.question, "gold": problem.gold, "completion": text}
            yield {**structs.asdict(record), **asked}
