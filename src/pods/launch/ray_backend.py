"""Execute the jobs of a sweep as Ray tasks, on a disk that the machines share.

Ray assigns cores and GPUs, and retries a task whose machine died or whose run can be resumed. If a
run uses several processes, its task starts a task for each of them, on whatever machine has room.
"""

import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Ray reads them once: send no usage report, print no trace when a task is retried
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_enable_output_error_log_if_still_retry", "0")

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import REFRESH_SECONDS, Backend, Job, forget_end
from pods.launch.live_table import LiveTable
from pods.launch.several import end
from pods.launch.subprocesses import (
    await_release,
    job_on_cluster,
    record_end,
    start_on_cluster,
    start_rank,
    status_line,
    wait_for_end,
)
from pods.runs.attempts import new_attempt
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.errors import DONE, FAILED
from pods.system.machine import python_path
from pods.system.signals import stop_on_signals

QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
GRACE_SECONDS = 30.0  # from the failure of one process of a run to the end of the others


@dataclass(frozen=True)
class _Submitted:
    """A job that is a task of Ray, or waits to be one."""

    job: Job
    started: float  # by this process's monotonic clock
    group: PlacementGroup | None  # of a run on several processes


def ray_backend(configs: Sequence[Config], settings: dict[str, Any]) -> Backend:
    """Connect to a Ray cluster, or start one here, as `hydra.launcher.ray.init` says.

    `ConfigError`: there is no cluster at the address, or this machine is too small for a job.
    """
    given = {key: value for key, value in settings["ray"]["init"].items() if value is not None}
    address = given.setdefault("address", "local")  # whatever RAY_ADDRESS says
    os.environ["PYTHONPATH"] = python_path()  # a cluster that starts here imports this package
    try:
        # Ray puts the current folder first on the path of its workers, where a file named numpy.py
        # would replace the library; a job goes to the sweep's folder itself
        with chdir("/"):
            ray.init(**(QUIET | given))
    except (ConnectionError, ValueError, RayError) as error:
        key, why = "hydra.launcher.ray.init.address", str(error).splitlines()[0]
        raise ConfigError(key, address, why) from error
    at_once = configs[0].launch.jobs or len(configs)
    if address == "local":  # on a cluster a job waits until a large enough machine joins
        fitting = [_jobs_that_fit(config) for config in configs]
        at_once = min(at_once, *fitting)
    return Backend(at_once, partial(_run_jobs, at_once=at_once), ray.shutdown)


def _jobs_that_fit(config: Config) -> int:
    """Return how many such jobs this machine can run at once; `ConfigError` if it is too small."""
    size = ray.cluster_resources()
    needs = resources(config)
    counts = []
    for option, name in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        needed = needs[option]
        there = size.get(name, 0)
        if needed > there:
            why = f"a job needs {needed} {name}s; this machine has {there:g}"
            raise ConfigError("hardware.processes", config.hardware.processes, why)
        if needed:
            counts.append(int(there // needed))
    return min(counts)


def resources(config: Config) -> dict[str, int]:
    """Return the cores and GPUs of one job, by the names of Ray's options."""
    hardware = config.hardware
    gpus = hardware.processes if hardware.device == "cuda" else 0
    return {"num_cpus": hardware.threads * hardware.processes, "num_gpus": gpus}


def execute(folder: str, cwd: str) -> None:
    """Execute a frozen run within a Ray task, which Ray retries after a BlockingIOError."""
    running = start_on_cluster(folder, cwd)
    if running is not None:
        _retry_unless_ended(folder, wait_for_end(running))


def _retry_unless_ended(folder: str, code: int) -> None:
    if code not in (DONE, FAILED):
        raise BlockingIOError(f"{folder}: the same task resumes it")


def execute_together(folder: str, cwd: str, group: PlacementGroup) -> None:
    """Execute a frozen run as a Ray task for each process, from one at the place of rank 0.

    The processes end together. None of them starts before there is room for all.
    """
    while not group.wait(REFRESH_SECONDS):
        pass
    job = job_on_cluster(folder, cwd)
    if job is None:
        return

    tasks = _start_ranks(job, cwd, group)
    try:
        _wait_for_all(tasks)
    except KeyboardInterrupt:  # Ray has passed it on, and each process commits and ends
        ray.wait(tasks, num_returns=len(tasks))
        raise
    codes = {rank: _exit_code(task) for rank, task in enumerate(tasks)}
    _retry_unless_ended(folder, end(job.store, codes))


def _start_ranks(job: Job, cwd: str, group: PlacementGroup) -> list[ray.ObjectRef]:
    """Start a task for each process of a run; rank 0 is on this machine."""
    hardware = job.config.hardware
    forget_end(job.store)
    folder = str(job.store.folder)
    attempt = new_attempt(job.store).absolute()
    shared = {  # as torchrun sets them
        "TORCHELASTIC_RUN_ID": attempt.name,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "WORLD_SIZE": str(hardware.processes),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": ray.util.get_node_ip_address(),
        "MASTER_PORT": _free_port(),
    }
    tasks = []
    for rank in range(hardware.processes):
        options = ray.remote(
            max_retries=0,
            num_cpus=hardware.threads,
            num_gpus=1 if hardware.device == "cuda" else 0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        )
        variables = shared | {"RANK": str(rank)}
        tasks.append(options(execute_rank).remote(folder, cwd, str(attempt), variables))
    return tasks


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("", 0))
        return str(free.getsockname()[1])


def execute_rank(folder: str, cwd: str, attempt: str, variables: dict[str, str]) -> int:
    """Execute one process of a run within a Ray task, and return its exit code."""
    os.chdir(cwd)
    store = RunStore(Path(folder))
    return wait_for_end(start_rank(Job(store, store.config()), Path(attempt), variables))


def _wait_for_all(tasks: Sequence[ray.ObjectRef]) -> None:
    """Wait until all processes have ended; if one fails, the others must end soon."""
    running = list(tasks)
    failed = False
    while running and not failed:
        [task], running = ray.wait(running)
        failed = _exit_code(task) != DONE

    _, late = ray.wait(running, num_returns=len(running), timeout=GRACE_SECONDS)
    for task in late:
        ray.cancel(task, force=True)


def _exit_code(task: ray.ObjectRef) -> int:
    """Return the exit code of a process that has ended, or whose machine has."""
    try:
        return int(ray.get(task))
    except RayError:
        return -signal.SIGKILL


def _submit(job: Job) -> tuple[ray.ObjectRef, PlacementGroup | None]:
    """Submit a job; one of several processes gets a placement group, which its task watches.

    The group is on one machine, if the cluster has one so large.
    """
    places = (str(job.store.folder.absolute()), str(Path.cwd()))
    options = {"max_retries": 3, "retry_exceptions": [BlockingIOError], "name": job.name}
    if job.config.hardware.processes == 1:
        alone = ray.remote(**options, **resources(job.config))(execute)
        return alone.remote(*places), None

    group = _reserve(job.config)
    first = PlacementGroupSchedulingStrategy(group, 0)
    together = ray.remote(**options, num_cpus=0, scheduling_strategy=first)(execute_together)
    return together.remote(*places, group), group


def _reserve(config: Config) -> PlacementGroup:
    """Reserve cores and GPUs for each process of a run, on one machine if one has room for all."""
    count = config.hardware.processes
    needs = resources(config)
    bundle = {"CPU": needs["num_cpus"] / count, "GPU": needs["num_gpus"] / count}
    strategy = "PACK"
    for node in ray.nodes():
        size = node["Resources"]
        if all(size.get(kind, 0) >= count * needed for kind, needed in bundle.items()):
            strategy = "STRICT_PACK"
    return placement_group([bundle] * count, strategy)


def _run_jobs(jobs: Sequence[Job], at_once: int) -> bool:
    """Submit the jobs that no other process runs, `at_once` at a time, until all have ended."""
    waiting = [job for job in jobs if state_of(job.store) != "running"]
    tasks: dict[ray.ObjectRef, _Submitted] = {}
    cancelled = False
    with stop_on_signals() as stop, LiveTable(len(waiting)) as live_table:
        while tasks or (waiting and not stop.requested):
            while waiting and len(tasks) < at_once and not stop.requested:
                job = waiting.pop(0)
                task, group = _submit(job)
                tasks[task] = _Submitted(job, time.monotonic(), group)

            if stop.requested and not cancelled:
                cancelled = True
                for task in tasks:
                    ray.cancel(task)  # raises KeyboardInterrupt in the task, which stops the run

            ended, _ = ray.wait(list(tasks), timeout=REFRESH_SECONDS)
            for task in ended:
                submitted = tasks.pop(task)
                _end(task, submitted, cancelled)
                seconds = time.monotonic() - submitted.started
                live_table.end(status_line(submitted.job, seconds))
            live_table.show([submitted.job.store for submitted in tasks.values()])
    return stop.requested


def _end(task: ray.ObjectRef, submitted: _Submitted, cancelled: bool) -> None:
    """Free what a task had reserved, and record its end if the run may not have done so.

    Ray may report the end of a cancelled task while the run still commits, and ends the run's
    processes when their places are freed.
    """
    if cancelled:
        await_release(submitted.job.store)
    if submitted.group is not None:
        remove_placement_group(submitted.group)
    try:
        ray.get(task)
    except RayError as error:
        lines = str(error).splitlines() or ["cancelled"]
        if not cancelled:
            record_end(submitted.job.store, lines[-1])
