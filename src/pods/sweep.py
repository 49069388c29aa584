"""A sweep on this machine: a fresh process a job, one a GPU or a core, and a figure at the end.

Jobs are frozen before the first one starts, run seed by seed so that arms stay balanced if the
sweep is stopped, and cannot take each other down.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods import job
from pods.board import Board
from pods.config import Config
from pods.runs.environment import gpus
from pods.runs.frozen import freeze
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import Stop, stop_on_signals
from pods.validate import ConfigError

POLL_SECONDS = 0.05
LOOK_SECONDS = 1.0  # between looks at the jobs' heartbeats
GRACE_SECONDS = 30.0  # a job that hangs may end itself first
LAST_LINES = 5
Job = tuple[RunStore, Config]


class SweepFailed(Exception):
    """Some jobs did not end well; the message lists each of them."""

    def __init__(self, message: str, code: int) -> None:
        """`code` is the exit code for the whole sweep."""
        super().__init__(message)
        self.code = code


@dataclass
class Running:
    """A job's process."""

    store: RunStore
    config: Config
    process: subprocess.Popen[bytes]
    slot: str
    started: float
    heartbeat: float = 0.0
    """As last seen in the job's status; only whether it changes counts, not the clock it is of."""
    silent: int = 0
    """Looks since it changed: not seconds, so that a machine that was suspended does not count."""
    killed: str | None = None
    """Why, if it was by us."""

    @property
    def name(self) -> str:
        """Arm, sizes and seed."""
        return job_name(self.config)


def run(configs: Sequence[Config]) -> None:
    """Freeze all jobs, run those with work left, print what happened, draw the figure.

    Raises:
        ConfigError: the jobs cannot share this machine's slots; nothing has been written.
        SweepFailed: some jobs failed or were stopped; the others are done.
    """
    free = slots(configs)
    in_order = sorted(configs, key=lambda config: config.seed)  # stable: seed-major
    jobs = {store.folder: (store, c) for c in in_order if (store := freeze(c))}.values()
    states = Counter(state_of(store) for store, _ in jobs)
    print(f"{len(jobs)} jobs, {states['done']} done before, {len(free)} at a time", flush=True)
    if states["failed"] and any(c.retry != "failed" for _, c in jobs):
        print(f"{states['failed']} failed before; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} running in another process; left alone")
    to_do = [
        (store, config)
        for store, config in jobs
        if job.to_do(store, config.retry) and state_of(store) != "running"
    ]
    stopped = _run_all(to_do, free)
    not_done = [(s, c) for s, c in jobs if s.status()["state"] != "done"]
    print(f"{len(jobs) - len(not_done)} of {len(jobs)} jobs done")
    if not_done:
        again = stopped or {state_of(s) for s, _ in not_done} <= {"preempted", "running"}
        message = "\n".join(_account(store, config) for store, config in not_done)
        raise SweepFailed(message, job.AGAIN if again else job.FAILED)
    _draw(configs[0], [store.folder for store, _ in jobs])


def slots(configs: Sequence[Config]) -> list[str]:
    """One a GPU that this process may use, or as many as the cores have threads for.

    Raises:
        ConfigError: some jobs want a GPU and some do not.
    """
    devices = sorted({config.hardware.device for config in configs})
    if len(devices) > 1:
        raise ConfigError("hardware.device", ",".join(devices), "must be one for a whole sweep")
    jobs = configs[0].launch.jobs
    if devices == ["cuda"]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = [str(i) for i in range(len(gpus()))] if visible is None else visible.split(",")
        return found[:jobs] or ["0"]
    threads = max(config.hardware.threads for config in configs)
    linux = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1
    count = jobs or max(1, cores // threads)
    return [str(i) for i in range(count)]


def job_name(config: Config) -> str:
    """Arm, sizes and seed, for a line on a screen."""
    rule = f"{config.arm or config.sampler.rule} {config.nm.n}->{config.nm.m}"
    return f"{rule:<24} seed {config.seed}"


def _run_all(jobs: Sequence[Job], free: list[str]) -> bool:
    """Run the jobs, one a free slot; return whether the sweep was asked to stop."""
    running: list[Running] = []
    with stop_on_signals() as stop, Board(len(jobs)) as board:
        try:
            for ended in _ended(list(jobs), list(free), running, stop, board):
                board.end(_result(ended))
        finally:  # also if this process itself fails: no job is left behind
            for active in running:
                active.process.terminate()
            for active in running:
                active.process.wait()
        return stop.requested


def _ended(
    waiting: list[Job], free: list[str], running: list[Running], stop: Stop, board: Board
) -> Iterator[Running]:
    """Start jobs as slots get free, and yield each one when its process has ended."""
    asked, looked = False, 0.0
    while running or (waiting and not stop.requested):
        while waiting and free and not stop.requested:
            _start_next(waiting, free, running, board)
        if stop.requested and not asked:
            asked = True
            for active in running:
                active.process.terminate()
        for active in [r for r in running if r.process.poll() is not None]:
            running.remove(active)
            free.append(active.slot)
            yield active
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            board.show([active.store.folder for active in running], len(waiting))
            for active in running:
                _end_if_silent(active)
        time.sleep(POLL_SECONDS)


def _start_next(waiting: list[Job], free: list[str], running: list[Running], board: Board) -> None:
    """Start the next job, unless another process has taken it up; a disk's error is the job's."""
    store, config = waiting.pop(0)
    try:
        if not job.to_do(store, config.retry) or state_of(store) == "running":
            board.end(f"{state_of(store):<9} {job_name(config)}  by another process")
        else:
            running.append(_start(store, config, free[0]))
            free.pop(0)
    except OSError as error:
        board.end(f"not begun {job_name(config)}  {error}")


def _start(store: RunStore, config: Config, slot: str) -> Running:
    if store.status().get("error"):
        store.set_status(error=None)  # of an earlier attempt
    attempt = store.new_attempt()
    package = str(Path(__file__).parents[1])  # the job finds us without being installed
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["OMP_NUM_THREADS"] = str(config.hardware.threads)  # jobs must not fight for cores
    if config.hardware.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = slot
    with (attempt / "console.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pods.job", str(store.folder), str(attempt)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    return Running(store, config, process, slot, time.monotonic())


def _end_if_silent(active: Running) -> None:
    """Kill a job that hangs so hard that its own watchdog does not end it."""
    heartbeat = active.store.status().get("heartbeat", 0.0)
    active.silent = active.silent + 1 if heartbeat == active.heartbeat else 0
    active.heartbeat = heartbeat
    limit = active.config.watchdog_seconds
    if limit is not None and active.silent * LOOK_SECONDS > limit + GRACE_SECONDS:
        active.killed = f"no sign of life for {active.silent * LOOK_SECONDS:.0f} s: killed"
        os.killpg(active.process.pid, signal.SIGKILL)


def _result(ended: Running) -> str:
    """One line on a job that has ended; one that died without a word is lost, and goes on."""
    store, code = ended.store, ended.process.returncode
    state = store.status()["state"]
    own = code in (job.DONE, job.FAILED, job.AGAIN)
    with suppress(OSError):  # a full disk: the lock tells that the run has ended
        if store.is_held():
            pass  # another process was faster, and runs it
        elif state == "running" or (state not in ("done", "failed") and not own):
            died = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            store.set_status(state="lost", error=ended.killed or died)
        elif code == job.FAILED and not store.status().get("error"):
            store.set_status(error="ended before it began")  # its console says why
    status, seconds = store.status(), time.monotonic() - ended.started
    found = f"accuracy {status['accuracy']:.3f}  " if status["state"] == "done" else ""
    return f"{status['state']:<9} {ended.name}  {found}{seconds:.0f} s"


def _account(store: RunStore, config: Config) -> str:
    """Why a job is not done, with the end of its newest console."""
    error = store.status().get("error")
    lines = [f"{state_of(store)}: {job_name(config)}: {error or 'not finished'}"]
    consoles = sorted((store.folder / "attempts").glob("*/console.log"))
    if error and consoles:
        tail = consoles[-1].read_text(errors="replace").splitlines()[-LAST_LINES:]
        lines += [f"    {line}" for line in tail] + [f"    ({consoles[-1]})"]
    return "\n".join(lines)


def _draw(config: Config, folders: Sequence[Path]) -> None:
    from pods.analysis.study import draw

    try:
        for line in draw(Path(config.runs_dir) / config.study, folders):
            print(line)
    except ValueError as error:
        print(f"no figure: {error}")
