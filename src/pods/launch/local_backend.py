"""Execute the jobs of a sweep on this machine, each with GPUs or cores of its own."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from pods.config.schema import Config
from pods.launch import fork_server
from pods.launch.backend import POLL_SECONDS, REFRESH_SECONDS, Backend, Job, has_work_left
from pods.launch.devices import DevicePool, check_gpus, device_pool, devices_needed, max_concurrent
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import JobProcess, check_heartbeat, finish, start_job
from pods.runs.status import state_of
from pods.system.signals import Stop, stop_on_signals


def local_backend(configs: Sequence[Config]) -> Backend:
    """Return this machine as a backend, if its devices are what jobs of these configs need."""
    check_gpus(configs)
    pool = device_pool(configs)
    return Backend(max_concurrent(pool, configs), partial(_run_jobs, pool=pool))


def may_fork(configs: Sequence[Config]) -> bool:
    """Return whether jobs of these configs can be forked from one process, and gain by it.

    CUDA does not survive a fork, vLLM and runs on several processes start processes of their own,
    and torch reads the number of threads once, when it loads. A single job gains nothing.
    """
    threads = {config.hardware.threads for config in configs}
    if len(configs) < 2 or len(threads) > 1 or sys.platform != "linux":
        return False
    return all(
        config.hardware.device == "cpu"
        and config.hardware.processes == 1
        and config.engine.name == "transformers"
        for config in configs
    )


def _run_jobs(jobs: Sequence[Job], pool: DevicePool) -> bool:
    """Execute the jobs; return whether a signal has asked this process to stop."""
    configs = [job.config for job in jobs]
    forked = may_fork(configs)
    if forked:
        modules = list(fork_server.LIBRARIES)
        if any(config.tracking.mode in ("offline", "online") for config in configs):
            modules.insert(0, fork_server.TRACKER)
        fork_server.start_server(modules, configs[0].hardware.threads)

    with stop_on_signals() as stop, LiveTable(len(jobs)) as live_table:
        queue = _Queue(list(jobs), pool, forked, live_table)
        try:
            queue.run(stop)
        finally:  # if this process fails, it leaves no job behind
            for job in queue.running:
                job.stop()
            for job in queue.running:
                job.process.wait()
        return stop.requested


@dataclass
class _Queue:
    """The jobs of one call of the backend, and what has become of them."""

    waiting: list[Job]
    pool: DevicePool
    forked: bool
    live_table: LiveTable
    running: list[JobProcess] = field(default_factory=list)
    stopping: bool = False  # the running jobs have been asked to stop
    refreshed: float = 0.0  # time of the last look at the jobs' heartbeats

    def run(self, stop: Stop) -> None:
        """Start jobs and watch them until all have ended, or until a request to stop."""
        while self.running or (self.waiting and not stop.requested):
            if not stop.requested:
                self.start_some()
            elif not self.stopping:
                self.stopping = True
                for job in self.running:
                    job.stop()

            self.collect_ended()
            if time.monotonic() - self.refreshed >= REFRESH_SECONDS:
                self.refresh()
            time.sleep(POLL_SECONDS)

    def start_some(self) -> None:
        """Start jobs until one has to wait for devices."""
        more = bool(self.waiting)
        while more:
            more = self.start_next() and bool(self.waiting)

    def collect_ended(self) -> None:
        """Record the jobs whose processes have ended, and return their devices."""
        for job in list(self.running):
            if job.process.poll() is not None:
                self.running.remove(job)
                self.pool.taken.remove(job.devices)
                self.live_table.end(finish(job))

    def refresh(self) -> None:
        """Draw the table anew, and kill the jobs that hang."""
        self.refreshed = time.monotonic()
        self.live_table.show([job.job.store for job in self.running])
        for job in self.running:
            check_heartbeat(job)

    def start_next(self) -> bool:
        """Start the next job, and return whether the one after it may be tried at once."""
        job = self.waiting[0]
        state = state_of(job.store)
        if state == "running" or not has_work_left(job.store, job.config):
            self.waiting.pop(0)
            self.live_table.end(f"{state:<9} {job.name}  by another process")
            return True

        devices = self.pool.take(devices_needed(job.config, self.pool))
        if devices is None:
            return False
        self.waiting.pop(0)
        try:
            self.running.append(start_job(job, devices, forked=self.forked))
        except OSError as error:  # the other jobs may lie on another disk
            self.pool.taken.remove(devices)
            self.live_table.end(f"not started {job.name}  {error}")
        return True
