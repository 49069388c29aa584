"""The jobs of a sweep on Ray: a task a job, seed by seed, on a disk that the machines share.

A task executes its run's frozen config in a process of its own. Ray gives it cores and GPUs; a
machine that dies, or a run that ends with 75, is tried again, so many times.
"""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once: no report goes out

import ray
from ray.exceptions import RayError, TaskCancelledError

from pods.board import Board
from pods.config import Config
from pods.job import to_do
from pods.launch.lease import is_free, note_end
from pods.launch.place import Job, Outcome, Place
from pods.machine import python_path
from pods.memory.fit import wants
from pods.process import attend, ended_line, job_name, start
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import Stop, stop_on_signals
from pods.trouble import DONE, FAILED
from pods.validate import ConfigError

TRIES = 4
LOOK_SECONDS = 1.0
HERE = "local"  # an address: Ray starts a cluster of this machine
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
Settings = dict[str, Any]


class Again(Exception):
    """The run ended with 75, its process died, or one still has it; the task may be tried again."""


def place(configs: Sequence[Config], settings: Settings) -> Place:
    """A Ray cluster, or one started here: as `hydra.launcher.ray.init` says.

    Raises:
        ConfigError: no cluster is at its address or starts here, or a job is too large for this
            machine; nothing has been written.
    """
    remote = settings["ray"]["remote"]
    folder = _connect({k: v for k, v in settings["ray"]["init"].items() if v is not None})
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    at_once = min(_fit(config, machines) for config in configs)
    largest = max(configs, key=lambda config: config.hardware.processes)
    if folder is not None and at_once == 0:
        ray.shutdown()
        said = f"takes {_words(needs(largest))}: this machine has {_words(machines[0])}"
        raise ConfigError("hardware.processes", largest.hardware.processes, said)
    jobs = configs[0].launch.jobs or len(configs)
    run = partial(_run_all, jobs_at_once=jobs, remote=remote, folder=folder)
    return Place(max(1, min(jobs, at_once)), wants(configs), run)


def needs(config: Config) -> dict[str, float]:
    """Cores and GPUs of one job, in Ray's words."""
    hardware = config.hardware
    gpus = hardware.processes if hardware.device == "cuda" else 0
    return {"CPU": hardware.threads * hardware.processes, "GPU": gpus}


def _connect(init: Settings) -> "tempfile.TemporaryDirectory[str] | None":
    """Join a cluster; or start one here, in a folder that goes with it, and return that.

    Where no address is said one is started here, whatever RAY_ADDRESS says.
    """
    os.environ["PYTHONPATH"] = python_path()  # a cluster started here finds what this process does
    folder = None
    if init.get("address", HERE) == HERE:
        folder = tempfile.TemporaryDirectory(prefix="pods-ray-", ignore_cleanup_errors=True)
        init = {"_temp_dir": folder.name, **init, "address": HERE}
    try:
        ray.init(**{**QUIET, **init})
    except (ConnectionError, ValueError, RayError) as error:
        raise ConfigError(*_place_of(init["address"]), str(error).splitlines()[0]) from error
    return folder


def _place_of(address: str) -> tuple[str, str]:
    """The key that says where the cluster is, and its value."""
    if address == HERE:
        return "launch", "ray"
    if address == "auto" and (found := os.environ.get("RAY_ADDRESS")):
        return "RAY_ADDRESS", found
    return "hydra.launcher.ray.init.address", address


def _fit(config: Config, machines: Sequence[Mapping[str, float]]) -> int:
    """How many such jobs run at once on machines that have nothing else to do."""
    wanted = {name: amount for name, amount in needs(config).items() if amount}
    return sum(
        min(int(has.get(name, 0) // amount) for name, amount in wanted.items()) for has in machines
    )


def _words(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} cores and {resources.get('GPU', 0):g} GPUs"


def execute(folder: str, cwd: str) -> int:
    """Run a run's frozen config on a machine of the cluster; in a task of Ray's.

    Raises:
        Again: it was stopped or died, and can go on; or another process runs it.
    """
    store = RunStore(Path(folder))
    if not is_free(store):  # the job of a worker that died commits for a while
        raise Again(f"{folder}: another process runs this")
    config = store.config()
    if not to_do(store, config.retry):
        return DONE
    code = attend(start(store, config, (), Path(cwd)))
    if code not in (DONE, FAILED):
        raise Again(folder)
    return code


def _submit(store: RunStore, config: Config, remote: Settings) -> "ray.ObjectRef":
    wanted = needs(config)
    options = {"num_cpus": wanted["CPU"], "num_gpus": wanted["GPU"], "max_retries": TRIES - 1,
               "retry_exceptions": [Again], "name": job_name(config)}  # fmt: skip
    task = ray.remote(execute).options(**{**options, **remote})
    return task.remote(str(store.folder.absolute()), str(Path.cwd()))


def _run_all(
    jobs: Sequence[Job],
    jobs_at_once: int,
    remote: Settings,
    folder: "tempfile.TemporaryDirectory[str] | None",
) -> Outcome:
    """Run the jobs as tasks."""
    elsewhere = [(s, c) for s, c in jobs if state_of(s) == "running"]
    waiting = [one for one in jobs if one not in elsewhere]
    try:
        with stop_on_signals() as stop, Board(len(waiting)) as board:
            _run_tasks(waiting, jobs_at_once, remote, stop, board)
            return Outcome(stop.requested, elsewhere)
    finally:
        ray.shutdown()
        if folder is not None:
            folder.cleanup()


def _run_tasks(
    waiting: list[Job], jobs_at_once: int, remote: Settings, stop: Stop, board: Board
) -> None:
    """Hand out tasks, and show how they stand until all have ended."""
    tasks: dict[ray.ObjectRef, tuple[RunStore, Config, float]] = {}
    asked = False
    while tasks or (waiting and not stop.requested):
        while waiting and len(tasks) < jobs_at_once and not stop.requested:
            store, config = waiting.pop(0)
            tasks[_submit(store, config, remote)] = store, config, time.monotonic()
        if stop.requested and not asked:
            asked = True
            for task in tasks:
                ray.cancel(task)  # KeyboardInterrupt in the task: the run commits and ends
        ended, _ = ray.wait(list(tasks), timeout=LOOK_SECONDS)
        for task in ended:
            store, config, began = tasks.pop(task)
            _note_end(store, task)
            board.end(ended_line(store, config, time.monotonic() - began))
        running = [s.folder for s, _, _ in tasks.values() if state_of(s) == "running"]
        board.show(running, len(tasks) - len(running) + len(waiting))


def _note_end(store: RunStore, task: "ray.ObjectRef") -> None:
    """Say what became of a run that could not say it itself."""
    why = "its task ended without a word"
    try:
        ray.get(task)
    except TaskCancelledError:  # as asked to: what began has written down how it ended
        return
    except RayError as error:
        why = " ".join([type(error).__name__, *str(error).splitlines()[-1:]])
    note_end(store, why, why)
