"""Execute the jobs of a sweep as Ray tasks, on a disk that the machines share.

Ray assigns cores and GPUs, to each process of a run on whatever machine has them, and retries a
task whose machine died or whose run can be resumed.
"""

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads this once; send no usage report

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import REFRESH_SECONDS, Backend, Job
from pods.launch.live_table import LiveTable
from pods.launch.ray_processes import connect
from pods.launch.subprocesses import record_end, start_on_cluster, status_line, wait_for_end
from pods.runs.status import state_of
from pods.system.errors import DONE, FAILED
from pods.system.machine import RAY, python_path
from pods.system.signals import stop_on_signals


def ray_backend(configs: Sequence[Config], settings: dict[str, Any]) -> Backend:
    """Connect to a Ray cluster, or start one here, as `hydra.launcher.ray.init` says.

    `ConfigError`: there is no cluster at the address, or this machine is too small for a job.
    """
    init = {key: value for key, value in settings["ray"]["init"].items() if value is not None}
    address = init.setdefault("address", "local")  # whatever RAY_ADDRESS says
    os.environ["PYTHONPATH"] = python_path()  # a cluster that starts here imports this package
    try:
        connect(**init)
    except (ConnectionError, ValueError, RayError) as error:
        key, why = "hydra.launcher.ray.init.address", str(error).splitlines()[0]
        raise ConfigError(key, address, why) from error
    size, at_once = ray.cluster_resources(), configs[0].launch.jobs or len(configs)
    for config in configs if address == "local" else ():  # whose jobs would wait for ever
        for option, name in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
            if (needed := resources(config)[option]) > (there := size.get(name, 0)):
                why = f"a job needs {needed} {name}s; this machine has {there:g}"
                raise ConfigError("hardware.processes", config.hardware.processes, why)
            at_once = min(at_once, int(there // needed) if needed else at_once)
    return Backend(at_once, partial(_run_jobs, at_once=at_once))


def resources(config: Config) -> dict[str, int]:
    """Return the cores and GPUs of one job, by the names of Ray's options."""
    hardware = config.hardware
    gpus = hardware.in_all() if hardware.device == "cuda" else 0
    return {"num_cpus": hardware.threads * hardware.in_all(), "num_gpus": gpus}


def execute(folder: str, cwd: str, group: str) -> None:
    """Execute a frozen run within a Ray task, which Ray retries after a BlockingIOError."""
    os.environ[RAY] = f"{ray.get_runtime_context().gcs_address} {group}"
    running = start_on_cluster(folder, cwd)
    if running is not None and wait_for_end(running) not in (DONE, FAILED):
        raise BlockingIOError(f"{folder}: the same task resumes it")


def _submit(job: Job) -> tuple[ray.ObjectRef, PlacementGroup | None]:
    """Submit a job; one of several processes gets a placement group, which its task watches.

    The group is on one machine, if the cluster has one so large.
    """
    config, group, name = job.config, None, uuid4().hex
    needs, count = resources(config), config.hardware.in_all()
    if count > 1:
        bundle = {"CPU": needs["num_cpus"] / count, "GPU": needs["num_gpus"] / count}
        sizes = [node["Resources"] for node in ray.nodes()]
        whole = any(all(of.get(k, 0) >= count * v for k, v in bundle.items()) for of in sizes)
        group = placement_group([bundle] * count, "STRICT_PACK" if whole else "PACK", name)
        needs = {"num_cpus": 0}
    place = "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, 0)
    task = ray.remote(max_retries=3, retry_exceptions=[BlockingIOError], name=job.name,
                      scheduling_strategy=place, **needs)(execute)  # fmt: skip
    return task.remote(str(job.store.folder.absolute()), str(Path.cwd()), name), group


def _run_jobs(jobs: Sequence[Job], at_once: int) -> bool:
    """Submit the jobs that no other process runs, `at_once` at a time, until all have ended."""
    waiting = [job for job in jobs if state_of(job.store) != "running"]
    tasks: dict[ray.ObjectRef, tuple[Job, float, PlacementGroup | None]] = {}
    cancelled = False
    with stop_on_signals() as stop, LiveTable(len(waiting)) as live_table:
        while tasks or (waiting and not stop.requested):
            while waiting and len(tasks) < at_once and not stop.requested:
                job = waiting.pop(0)
                task, group = _submit(job)
                tasks[task] = job, time.monotonic(), group
            if stop.requested and not cancelled:
                cancelled = True
                for task in tasks:
                    ray.cancel(task)  # raises KeyboardInterrupt in the task, which stops the run
            for task in ray.wait(list(tasks), timeout=REFRESH_SECONDS)[0]:
                job, started, group = tasks.pop(task)
                if group is not None:
                    remove_placement_group(group)
                try:
                    ray.get(task)
                except RayError as error:
                    if not cancelled:  # the run may not have recorded its end
                        record_end(job.store, " ".join(str(error).splitlines()[-1:]) or "cancelled")
                live_table.end(status_line(job, time.monotonic() - started))
            live_table.show([job.store for job, *_ in tasks.values()])
    ray.shutdown()
    return stop.requested
