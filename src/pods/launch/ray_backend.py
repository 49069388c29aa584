"""Execute the jobs of a sweep as Ray tasks, on a disk that the machines share.

A task executes its run's frozen config in a process of its own. Ray assigns cores and GPUs, and
retries a task whose machine died or whose run ended with exit code 75.
"""

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads this once; send no usage report

import ray
from ray.exceptions import RayError, TaskCancelledError

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import Backend, Job, Outcome
from pods.launch.job import has_work_left
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import (
    record_end,
    start_job,
    status_line,
    wait_for_end,
    wait_until_free,
)
from pods.memory.fit import describe_largest
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.errors import DONE, FAILED
from pods.system.machine import python_path
from pods.system.signals import Stop, stop_on_signals

TRIES = 4
POLL_SECONDS = 1.0
LOCAL = "local"  # the address with which Ray starts a cluster on this machine
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
Settings = dict[str, Any]


class RunInterrupted(Exception):
    """The run can be resumed; Ray retries the task."""


def ray_backend(configs: Sequence[Config], settings: Settings) -> Backend:
    """Connect to a Ray cluster, or start one here, as `hydra.launcher.ray.init` says.

    Raises:
        ConfigError: there is no cluster at the address, or a job is too large for this machine;
            nothing has been written.
    """
    init = {key: value for key, value in settings["ray"]["init"].items() if value is not None}
    address = init.setdefault("address", LOCAL)  # whatever RAY_ADDRESS says
    os.environ["PYTHONPATH"] = python_path()  # a cluster that starts here imports this package
    try:
        ray.init(**{**QUIET, **init})
    except (ConnectionError, ValueError, RayError) as error:
        raise ConfigError(*_address_key(address), str(error).splitlines()[0]) from error
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fitting = min(_fitting_jobs(config, machines) for config in configs)
    if address == LOCAL and fitting == 0:
        ray.shutdown()
        largest = max(configs, key=lambda config: config.hardware.processes)
        why = f"needs {_text(resources(largest))}; this machine has {_text(machines[0])}"
        raise ConfigError("hardware.processes", largest.hardware.processes, why)
    jobs = configs[0].launch.jobs or len(configs)
    run = partial(_run_jobs, at_once=jobs, remote=settings["ray"]["remote"])
    return Backend(max(1, min(jobs, fitting)), describe_largest(configs, None), run)


def resources(config: Config) -> dict[str, float]:
    """Return the cores and GPUs of one job, by Ray's names."""
    hardware = config.hardware
    gpus = hardware.processes if hardware.device == "cuda" else 0
    return {"CPU": hardware.threads * hardware.processes, "GPU": gpus}


def _address_key(address: str) -> tuple[str, str]:
    """Return the key that determines the cluster's address, and its value."""
    if address == LOCAL:
        return "launch", "ray"
    if address == "auto" and "RAY_ADDRESS" in os.environ:
        return "RAY_ADDRESS", os.environ["RAY_ADDRESS"]
    return "hydra.launcher.ray.init.address", address


def _fitting_jobs(config: Config, machines: Sequence[Mapping[str, float]]) -> int:
    """Return how many such jobs fit on idle machines at once."""
    needed = {name: amount for name, amount in resources(config).items() if amount}
    return sum(
        min(int(machine.get(name, 0) // amount) for name, amount in needed.items())
        for machine in machines
    )


def _text(amounts: Mapping[str, float]) -> str:
    return f"{amounts.get('CPU', 0):g} cores and {amounts.get('GPU', 0):g} GPUs"


def execute(folder: str, cwd: str) -> int:
    """Execute a run's frozen config on a machine of the cluster, within a Ray task.

    Raises:
        RunInterrupted: the run was stopped or died, or another process still runs it.
    """
    store = RunStore(Path(folder))
    if not wait_until_free(store):  # the process of a worker that died may still commit
        raise RunInterrupted(f"{folder}: another process runs this")
    config = store.config()
    if not has_work_left(store, config.retry):
        return DONE
    code = wait_for_end(start_job(Job(store, config), cwd=Path(cwd)))
    if code not in (DONE, FAILED):
        raise RunInterrupted(folder)
    return code


def _submit(job: Job, remote: Settings) -> "ray.ObjectRef":
    needed = resources(job.config)
    options = {
        "num_cpus": needed["CPU"],
        "num_gpus": needed["GPU"],
        "max_retries": TRIES - 1,
        "retry_exceptions": [RunInterrupted],
        "name": job.name,
    }
    task = ray.remote(execute).options(**{**options, **remote})
    return task.remote(str(job.store.folder.absolute()), str(Path.cwd()))


def _run_jobs(jobs: Sequence[Job], at_once: int, remote: Settings) -> Outcome:
    """Execute the jobs that no other process runs."""
    external = [job for job in jobs if state_of(job.store) == "running"]
    waiting = [job for job in jobs if job not in external]
    try:
        with stop_on_signals() as stop, LiveTable(len(waiting)) as live_table:
            _run_tasks(waiting, at_once, remote, stop, live_table)
            return Outcome(stop.requested, external)
    finally:
        ray.shutdown()


def _run_tasks(
    waiting: list[Job], at_once: int, remote: Settings, stop: Stop, live_table: LiveTable
) -> None:
    """Submit jobs in order, `at_once` at a time, and show their states until all have ended."""
    tasks: dict[ray.ObjectRef, tuple[Job, float]] = {}
    stopping = False
    while tasks or (waiting and not stop.requested):
        while waiting and len(tasks) < at_once and not stop.requested:
            job = waiting.pop(0)
            tasks[_submit(job, remote)] = job, time.monotonic()
        if stop.requested and not stopping:
            stopping = True
            for task in tasks:
                ray.cancel(task)  # raises KeyboardInterrupt in the task, which stops the run
        ended, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
        for task in ended:
            job, started = tasks.pop(task)
            try:
                ray.get(task)
            except TaskCancelledError:
                pass  # a run that had begun has recorded how it ended
            except RayError as error:
                last_line = str(error).splitlines()[-1:]
                record_end(job.store, " ".join([type(error).__name__, *last_line]))
            live_table.end(status_line(job, time.monotonic() - started))
        stores = [job.store for job, _ in tasks.values()]
        running = [store.folder for store in stores if state_of(store) == "running"]
        live_table.show(running, len(tasks) - len(running) + len(waiting))
