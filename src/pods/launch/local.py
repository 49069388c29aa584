"""The jobs of a sweep on this machine: GPUs or cores of its own for each."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from pods import job
from pods.board import Board
from pods.config import Config
from pods.launch.fork_server import Forked, ForkServer
from pods.launch.place import Job, Outcome, Place
from pods.machine import cores
from pods.memory.fit import outlook
from pods.process import LOOK_SECONDS, Running, end_if_silent, job_name, result, start
from pods.runs.environment import gpus
from pods.runs.status import state_of
from pods.slots import Slots, first
from pods.stop import Stop, stop_on_signals
from pods.validate import ConfigError

POLL_SECONDS = 0.05
FORKED_WITH = ("pods.assemble", "pods.rehearsal")  # they import all that a job computes with
TRACKED_WITH = ("wandb.apis.public",)  # with most of what `wandb.init` imports


def place(configs: Sequence[Config]) -> Place:
    """This machine, for jobs of these configs.

    Raises:
        ConfigError: the jobs cannot share this machine, or one is too large for it.
    """
    here = gpus() if any(config.hardware.device == "cuda" for config in configs) else []
    for config in configs:
        if (lacking := lacks(config, here)) is not None:
            raise lacking
    free = slots(configs)
    at_once = at_a_time(free, configs)
    return Place(at_once, outlook(configs, at_once), partial(_run_all, slots=free))


def lacks(config: Config, here: Sequence[str] | None = None) -> ConfigError | None:
    """Why one run has too few GPUs here; None: it has enough, or only loading tells.

    Args:
        config: of the run.
        here: GPUs of this machine; None: it is asked for them if need be.
    """
    wanted = config.hardware.processes
    if config.hardware.device != "cuda":
        return None
    if _visible() == []:
        return ConfigError("hardware.device", "cuda", "CUDA_VISIBLE_DEVICES leaves no GPU")
    if wanted == 1 or wanted <= (found := len(gpus() if here is None else here)):
        return None
    has = "1 GPU" if found == 1 else f"{found} GPUs"
    return ConfigError("hardware.processes", wanted, f"takes a GPU each: this machine has {has}")


def _visible() -> list[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; None: it says nothing."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else [name for name in visible.split(",") if name]


def slots(configs: Sequence[Config]) -> Slots:
    """The GPUs that this process may use, or its cores.

    Raises:
        ConfigError: some jobs want a GPU and some do not.
    """
    devices = sorted({config.hardware.device for config in configs})
    if len(devices) > 1:
        raise ConfigError("hardware.device", ",".join(devices), "must be one for a whole sweep")
    jobs = configs[0].launch.jobs
    if devices == ["cuda"]:
        visible = _visible()
        found = [str(i) for i in range(len(gpus()))] if visible is None else visible
        return Slots(found or ["0"], jobs)
    return Slots([str(i) for i in range(jobs or cores())], jobs)


def need(config: Config, slots: Slots) -> int:
    """How many of the devices a job takes: of cores no more than there are, if need be by sharing.

    Where `launch.jobs` says how many run at once on a CPU, each has a share, whatever its threads.
    """
    hardware = config.hardware
    if hardware.device == "cuda":
        wanted = hardware.processes
    else:
        wanted = 1 if config.launch.jobs else hardware.threads * hardware.processes
    return min(wanted, len(slots.devices))


def at_a_time(slots: Slots, configs: Sequence[Config]) -> int:
    """The most of these jobs that run at once."""
    return len(first(slots, sorted(need(config, slots) for config in configs)))


@dataclass
class _Sweep:
    """What goes on."""

    waiting: list[Job]
    slots: Slots
    stop: Stop
    board: Board
    server: ForkServer | None
    running: list[Running] = field(default_factory=list)
    elsewhere: list[Job] = field(default_factory=list)


def fork_server(configs: Sequence[Config]) -> ForkServer | None:
    """What is to fork these jobs; None: each is started afresh.

    A GPU's libraries do not outlive a fork, vLLM and torchrun start processes of their own, and
    threads are read once, when torch loads. For one job there is nothing to save.
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
    return ForkServer(threads.pop(), FORKED_WITH + TRACKED_WITH * tracked)


def _run_all(jobs: Sequence[Job], slots: Slots) -> Outcome:
    """Run the jobs in their order."""
    with ExitStack() as held:
        stop, board = held.enter_context(stop_on_signals()), held.enter_context(Board(len(jobs)))
        server = fork_server([config for _, config in jobs])
        if server is not None:
            held.enter_context(server)
        sweep = _Sweep(list(jobs), slots, stop, board, server)
        try:
            for ended in _ended(sweep):
                board.end(result(ended))
                if _is_left(ended, server):
                    sweep.elsewhere.append((ended.store, ended.config))
        finally:  # also if this process itself fails: no job is left behind
            for active in sweep.running:
                active.process.terminate()
            for active in sweep.running:
                active.process.wait()
        return Outcome(stop.requested, sweep.elsewhere)


def _is_left(ended: Running, server: ForkServer | None) -> bool:
    """Whether a run goes on without this sweep, or could: another process was faster, or the fork
    server has died, and what it had forked commits and stops.
    """
    if isinstance(ended.process, Forked) and server is not None and not server.is_alive():
        return job.to_do(ended.store, ended.config.retry)
    return state_of(ended.store) == "running"


def _ended(sweep: _Sweep) -> Iterator[Running]:
    """Start jobs as devices get free, and yield each one when its process has ended."""
    running, asked, looked = sweep.running, False, 0.0
    while running or (sweep.waiting and not sweep.stop.requested):
        while sweep.waiting and not sweep.stop.requested and _start_next(sweep):
            pass
        if sweep.stop.requested and not asked:
            asked = True
            for active in running:
                active.process.terminate()
        for active in [r for r in running if r.process.poll() is not None]:
            running.remove(active)
            sweep.slots.give(active.devices)
            yield active
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            sweep.board.show([active.store.folder for active in running], len(sweep.waiting))
            for active in running:
                end_if_silent(active)
        time.sleep(POLL_SECONDS)


def _start_next(sweep: _Sweep) -> bool:
    """Start the next job, unless another process has it; return whether one may try the next.

    A disk's error is the job's.
    """
    store, config = sweep.waiting[0]
    if not job.to_do(store, config.retry) or state_of(store) == "running":
        sweep.elsewhere.append(sweep.waiting.pop(0))
        sweep.board.end(f"{state_of(store):<9} {job_name(config)}  by another process")
        return True
    if sweep.server is not None and sweep.server.is_loading():
        return False
    devices = sweep.slots.take(need(config, sweep.slots))
    if devices is None:
        return False
    sweep.waiting.pop(0)
    try:
        server = sweep.server if sweep.server is not None and sweep.server.is_alive() else None
        sweep.running.append(start(store, config, devices, server=server))
    except OSError as error:
        sweep.slots.give(devices)
        sweep.board.end(f"not begun {job_name(config)}  {error}")
    return True
