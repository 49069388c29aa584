"""`pods doctor`: check whether this machine is fit for a run, by quick checks and a smoke step."""

import os
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pods.config.schema import Config
from pods.config.task_keys import TaskConfig
from pods.launch.dry_run import existing_parent, missing
from pods.runs.attempts import environment
from pods.runs.paths import weights_source
from pods.system.machine import set_threads

GIB = 2**30
EXAMPLES, BAD_ROWS = 3, 5  # prompts and malformed rows of a data set that are shown


def add_options(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for pods run")


def run(options: Namespace) -> int:
    """Print the facts of this machine, check the data and take a step; return 0 if all is well."""
    from pods.config.checks import validate
    from pods.config.compose import compose

    config = validate({**compose(options.overrides), "dry_run": True})  # what is missing: below
    machine = environment()
    for label, text in _facts(config, machine):
        print(f"{label:<10} {text}", flush=True)
    errors = [*missing([config], machine["gpus"]), *_unwritable(config.runs_dir)]
    if config.task.path is not None and not any("task." in line for line in errors):
        errors += _malformed(config.task)
    if not errors:
        errors += _smoke_step(config)
    print("\n".join(errors or ["all is well"]))
    return 1 if errors else 0


def _facts(config: Config, machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of what can be seen without loading anything."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "machine", f"{machine['cpu']}, {machine['cores']} cores, {memory / GIB:.0f} GiB memory"
    yield "GPUs", ", ".join(machine["gpus"]) or "none"
    packages = (f"{name} {version}" for name, version in machine["packages"].items() if version)
    yield "software", ", ".join([f"python {machine['python']}", *packages])
    for folder in (existing_parent(config.runs_dir), Path("/dev/shm")):
        if folder.is_dir():
            yield "disk", f"{shutil.disk_usage(folder).free / GIB:.1f} GiB free in {folder}"
    source = weights_source(config.model)
    yield "model", f"{config.model.name}, {source}{' on the hub' * (source == config.model.hub)}"
    task, engine, hardware = config.task, config.engine, config.hardware
    where = ", ".join(filter(None, (task.path, task.test_path))) or "on the hub"
    yield "task", f"{task.name}, {'generated' if task.name in ('chainsum', 'own') else where}"
    yield "engine", engine.name + f", {engine.sync}, {engine.dtype}" * (engine.name == "vllm")
    yield "hardware", f"{hardware.device}, {hardware.threads} CPU threads per job"


def _unwritable(runs_dir: str) -> Iterator[str]:
    try:
        with tempfile.TemporaryFile(dir=existing_parent(runs_dir)) as file:
            file.write(bytes(2**20))
    except OSError as error:
        yield f"missing: runs_dir={runs_dir}: must be on a writable disk ({error.strerror})"


def _malformed(task: TaskConfig) -> Iterator[str]:
    """Print the first malformed rows and what the model is asked; yield why no run can start."""
    from pods.tasks.datasets.splits import check_splits
    from pods.tasks.load import read_splits
    from pods.tasks.prompts import make_problems

    train, test, _ = read_splits(task)
    rows = train.malformed + test.malformed
    found = f"{len(rows)} malformed rows, {len(train.rows)} train rows, {len(test.rows)} test rows"
    print(*rows[:BAD_ROWS], found, sep="\n")
    problems, _ = make_problems(task, train, test)
    for message in problems[0].messages[:-1] if problems else ():
        print(f"\n[{message['role']}]\n{message['content']}")
    for problem in problems[:EXAMPLES]:
        print(f"\n[user, {problem.id}; right: {problem.gold}]\n{problem.question}")
    try:
        check_splits(task, train, test)
    except ValueError as error:
        yield f"failed: {error}"


def _smoke_step(config: Config) -> Iterator[str]:
    """Take the smoke step and print its results; yield the error in one line, if any."""
    set_threads(config.hardware.threads)
    from pods.cli.smoke_step import smoke_step

    try:
        for label, text in smoke_step(config):
            print(f"{label:<10} {text}", flush=True)
    except Exception as error:  # the user wants to know whatever a library raises
        ours = isinstance(error, ValueError) or type(error).__module__.startswith("pods.")
        kind = "" if ours else f"{type(error).__name__}: "
        yield " ".join(f"failed: {kind}{error}".split())
