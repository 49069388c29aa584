"""Execute the jobs of a sweep on this machine, each with GPUs or cores of its own."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from pods.config.schema import Config
from pods.launch.backend import Backend, Job, Outcome
from pods.launch.devices import (
    DevicePool,
    check_gpus,
    device_pool,
    devices_needed,
    max_concurrent,
)
from pods.launch.fork_server import ForkedProcess, ForkServer
from pods.launch.job import has_work_left
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import (
    HEARTBEAT_POLL_SECONDS,
    POLL_SECONDS,
    JobProcess,
    check_heartbeat,
    finish,
    start_job,
)
from pods.memory.fit import describe_largest
from pods.runs.status import state_of
from pods.system.errors import AGAIN, FAILED, is_machine_error
from pods.system.signals import Stop, stop_on_signals

PRELOADED = ("pods.training.build", "pods.training.preflight")
"""Modules that import every library with which a job computes."""
PRELOADED_FOR_TRACKING = ("wandb.apis.public",)
"""Modules that import most of what `wandb.init` needs."""


def local_backend(configs: Sequence[Config]) -> Backend:
    """Return this machine as a backend for jobs of these configs.

    Raises:
        ConfigError: the jobs need different kinds of devices, or more GPUs than there are.
    """
    different = {(c.hardware.device, c.hardware.processes): c for c in configs}
    for config in different.values():  # each check may call nvidia-smi
        check_gpus(config)
    pool = device_pool(configs)
    at_once = max_concurrent(pool, configs)
    return Backend(at_once, describe_largest(configs, at_once), partial(_run_jobs, pool=pool))


def fork_server(configs: Sequence[Config]) -> ForkServer | None:
    """Start a fork server for jobs of these configs if forking is safe and worth it.

    CUDA does not survive a fork, vLLM and runs on several processes start processes of their own,
    and torch reads the number of threads once, when it loads. A single job gains nothing.
    """
    threads = {config.hardware.threads for config in configs}
    if sys.platform != "linux" or len(configs) < 2 or len(threads) > 1:
        return None
    for config in configs:
        hardware, on_vllm = config.hardware, config.engine.name == "vllm"
        if hardware.device == "cuda" or hardware.processes > 1 or on_vllm:
            return None
        if not config.launch.fork_server:
            return None
    tracked = any(config.tracking.wandb != "none" for config in configs)
    return ForkServer(threads.pop(), PRELOADED + PRELOADED_FOR_TRACKING * tracked)


@dataclass
class _Progress:
    """The jobs of one call of the backend, and what has become of them."""

    waiting: list[Job]
    pool: DevicePool
    stop: Stop
    live_table: LiveTable
    server: ForkServer | None
    running: list[JobProcess] = field(default_factory=list)
    external: list[Job] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)


def _run_jobs(jobs: Sequence[Job], pool: DevicePool) -> Outcome:
    """Execute jobs in order, as devices become free."""
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        live_table = stack.enter_context(LiveTable(len(jobs)))
        server = fork_server([job.config for job in jobs])
        if server is not None:
            stack.enter_context(server)
        progress = _Progress(list(jobs), pool, stop, live_table, server)
        try:
            for ended in _run_until_ended(progress):
                live_table.end(finish(ended))
                progress.exit_codes.append(ended.process.wait())
                if _may_continue(ended, server):
                    progress.external.append(ended.job)
        finally:  # if this process fails, it leaves no job behind
            for running in progress.running:
                running.process.terminate()
            for running in progress.running:
                running.process.wait()
        return Outcome(stop.requested, progress.external, progress.exit_codes)


def _may_continue(ended: JobProcess, server: ForkServer | None) -> bool:
    """Return whether a run continues, or can be continued, without this process.

    Another process may have started it first. If the fork server died, the processes that it forked
    commit a checkpoint and stop on their own.
    """
    if ended.job.evaluate:
        return False
    if isinstance(ended.process, ForkedProcess) and server is not None and not server.is_alive():
        return has_work_left(ended.job.store, ended.job.config.retry)
    return state_of(ended.job.store) == "running"


def _run_until_ended(progress: _Progress) -> Iterator[JobProcess]:
    """Start jobs as devices become free, and yield each process when it has ended."""
    running, stop, stopping, last_poll = progress.running, progress.stop, False, 0.0
    while running or (progress.waiting and not stop.requested):
        while progress.waiting and not stop.requested and _start_next(progress):
            pass
        if stop.requested and not stopping:
            stopping = True
            for each in running:
                each.process.terminate()
        for ended in [each for each in running if each.process.poll() is not None]:
            running.remove(ended)
            progress.pool.give_back(ended.devices)
            yield ended
        if time.monotonic() - last_poll >= HEARTBEAT_POLL_SECONDS:
            last_poll = time.monotonic()
            folders = [each.job.store.folder for each in running]
            progress.live_table.show(folders, len(progress.waiting))
            for each in running:
                check_heartbeat(each)
        time.sleep(POLL_SECONDS)


def _start_next(progress: _Progress) -> bool:
    """Start the next job, and return whether the one after it may be tried at once."""
    job, server = progress.waiting[0], progress.server
    if not job.evaluate:
        state = state_of(job.store)
        if state == "running" or not has_work_left(job.store, job.config.retry):
            progress.external.append(progress.waiting.pop(0))
            progress.live_table.end(f"{state:<9} {job.name}  by another process")
            return True
    if server is not None and server.is_loading():
        return False
    devices = progress.pool.take(devices_needed(job.config, progress.pool))
    if devices is None:
        return False
    progress.waiting.pop(0)
    try:
        alive = server if server is not None and server.is_alive() else None
        progress.running.append(start_job(job, devices, server=alive))
    except OSError as error:  # the other jobs may lie on another disk
        progress.pool.give_back(devices)
        progress.exit_codes.append(AGAIN if is_machine_error(error) else FAILED)
        progress.live_table.end(f"not started {job.name}  {error}")
    return True
