"""`pods doctor`: check whether this machine has what a run needs, and how a step is tried."""

import os
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.config.task_keys import TaskConfig
from pods.launch.dry_run import missing, unwritable
from pods.launch.evaluation_forecast import count_questions
from pods.launch.memory_forecast import describe
from pods.launch.model_sizes import describe_model
from pods.runs.attempts import environment
from pods.runs.writable import existing_parent
from pods.system.text import RUN, gigabytes

EXAMPLES = 3  # prompts of a data set that are shown
BAD_ROWS = 5  # malformed rows of it that are shown


def add_options(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for pods run")


def run(options: Namespace) -> int:
    """Print the facts of this machine and check the data; return 0 if nothing is missing."""
    from pods.config.checks import validate
    from pods.config.compose import compose

    values = compose(options.overrides)
    values["dry_run"] = True  # so that all that is missing is listed, below
    config = validate(values)
    machine = environment()
    for label, text in _facts(config, machine):
        print(f"{label:<10} {text}", flush=True)

    errors = list(missing([config], machine["gpus"]))
    errors += unwritable(config)
    has_rows = config.task.path is not None or config.task.name == "gym"
    if has_rows and not any("task." in line or "task=" in line for line in errors):
        errors += _malformed(config.task)
    if errors:
        print("\n".join(errors))
        return 1
    print(f"nothing is missing; to try two steps: {_trial(options.overrides)}")
    return 0


def _trial(overrides: Sequence[str]) -> str:
    """Return the command that tries two steps of the same run, which it leaves nowhere."""
    return f"{RUN} {shlex.join([*overrides, 'debug=default'])} runs_dir=$(mktemp -d)"


def _facts(config: Config, machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of what can be seen without loading anything."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "machine", f"{machine['cpu']}, {machine['cores']} cores, {gigabytes(memory)} memory"
    yield "GPUs", ", ".join(machine["gpus"]) or "none"
    packages = [f"{name} {version}" for name, version in machine["packages"].items() if version]
    yield "software", ", ".join([f"python {machine['python']}", *packages])
    for folder in (existing_parent(Path(config.runs_dir)), Path("/dev/shm")):
        if folder.is_dir():
            yield "disk", f"{gigabytes(shutil.disk_usage(folder).free)} free in {folder}"

    yield "model", describe_model(config.model)
    yield "memory", describe([config], count_questions([config]), at_once=1)
    yield "task", f"{config.task.name}, {_data(config.task)}"
    yield "engine", _engine(config)
    hardware = config.hardware
    yield "hardware", f"{hardware.device}, {hardware.threads} CPU threads per job"


def _data(task: TaskConfig) -> str:
    """Say where the problems of a task come from."""
    if task.name in ("chainsum", "own", "gym"):
        return "generated"
    files = [path for path in (task.path, task.test_path) if path is not None]
    return ", ".join(files) or "on the hub"


def _engine(config: Config) -> str:
    engine = config.engine
    if engine.name == "vllm":
        return f"vllm, {engine.sync}, {engine.dtype}"
    return engine.name


def _malformed(task: TaskConfig) -> Iterator[str]:
    """Print the first malformed rows and what the model is asked; yield why no run can start."""
    from pods.tasks.datasets.splits import check_splits
    from pods.tasks.load import read_splits
    from pods.tasks.prompts import make_problems

    train, test, _ = read_splits(task)
    rows = train.malformed + test.malformed
    for row in rows[:BAD_ROWS]:
        print(row)
    print(f"{len(rows)} malformed rows, {len(train.rows)} train rows, {len(test.rows)} test rows")

    problems, _ = make_problems(task, train, test)
    if problems:
        for message in problems[0].messages[:-1]:
            print(f"\n[{message['role']}]\n{message['content']}")
    for problem in problems[:EXAMPLES]:
        print(f"\n[user, {problem.id}; right: {problem.gold}]\n{problem.question}")
    try:
        check_splits(task, train, test)
    except ValueError as error:
        yield f"failed: {error}"
