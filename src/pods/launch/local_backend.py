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
    pairs = [(config.hardware, config.engine.name) for config in configs]
    kinds = {(of.device, of.in_all(), engine) for of, engine in pairs}
    alike = kinds == {("cpu", 1, "transformers")} and len({of.threads for of, _ in pairs}) == 1
    return alike and len(configs) > 1 and sys.platform == "linux"


def _run_jobs(jobs: Sequence[Job], pool: DevicePool) -> bool:
    configs = [job.config for job in jobs]
    if forked := may_fork(configs):
        with_wandb = any(config.tracking.mode in ("offline", "online") for config in configs)
        fork_server.prepare(configs[0].hardware.threads, with_wandb)
    with stop_on_signals() as stop, LiveTable(len(jobs)) as live_table:
        queue = _Queue(list(jobs), pool, forked, live_table)
        try:
            queue.run(stop)
        finally:  # if this process fails, it leaves no job behind
            for job in queue.running:
                job.process.terminate()
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

    def run(self, stop: Stop) -> None:
        stopping, last_poll = False, 0.0
        while self.running or (self.waiting and not stop.requested):
            while self.waiting and not stop.requested and self.start_next():
                pass
            if stop.requested and not stopping:
                stopping = True
                for job in self.running:
                    job.process.terminate()
            for ended in [job for job in self.running if job.process.poll() is not None]:
                self.running.remove(ended)
                self.pool.taken.remove(ended.devices)
                self.live_table.end(finish(ended))
            if time.monotonic() - last_poll >= REFRESH_SECONDS:
                last_poll = time.monotonic()
                self.live_table.show([job.job.store for job in self.running])
                for job in self.running:
                    check_heartbeat(job)
            time.sleep(POLL_SECONDS)

    def start_next(self) -> bool:
        """Start the next job, and return whether the one after it may be tried at once."""
        job = self.waiting[0]
        state = state_of(job.store)
        if state == "running" or not has_work_left(job.store, job.config.retry):
            self.waiting.pop(0)
            self.live_table.end(f"{state:<9} {job.name}  by another process")
            return True
        if (devices := self.pool.take(devices_needed(job.config, self.pool))) is None:
            return False
        self.waiting.pop(0)
        try:
            self.running.append(start_job(job, devices, forked=self.forked))
        except OSError as error:  # the other jobs may lie on another disk
            self.pool.taken.remove(devices)
            self.live_table.end(f"not started {job.name}  {error}")
        return True
