"""A sweep on this machine: a fresh process a job, one a GPU or a core, and a figure at the end.

Jobs are frozen before the first one starts, run seed by seed so that arms stay balanced if the
sweep is stopped, and cannot take each other down.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pods import job
from pods.board import Board
from pods.config import Config
from pods.console import forgiving_console
from pods.machine import cores
from pods.memory.fit import outlook
from pods.process import LOOK_SECONDS, Running, end_if_silent, job_name, result, start
from pods.runs.environment import gpus
from pods.runs.frozen import freeze
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import Stop, stop_on_signals
from pods.validate import ConfigError

POLL_SECONDS = 0.05
LAST_LINES = 5
Job = tuple[RunStore, Config]


class SweepFailed(Exception):
    """Some jobs did not end well; the message lists each of them."""

    def __init__(self, message: str, code: int) -> None:
        """`code` is the exit code for the whole sweep."""
        super().__init__(message)
        self.code = code


@forgiving_console()
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
    at_once = min(len(free), len(jobs))
    print(f"{len(jobs)} jobs, {states['done']} done before, {at_once} at a time", flush=True)
    print(f"memory: {outlook(configs, at_once)}", flush=True)
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
    count = jobs or max(1, cores() // threads)
    return [str(i) for i in range(count)]


def _run_all(jobs: Sequence[Job], free: list[str]) -> bool:
    """Run the jobs, one a free slot; return whether the sweep was asked to stop."""
    running: list[Running] = []
    with stop_on_signals() as stop, Board(len(jobs)) as board:
        try:
            for ended in _ended(list(jobs), list(free), running, stop, board):
                board.end(result(ended))
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
                end_if_silent(active)
        time.sleep(POLL_SECONDS)


def _start_next(waiting: list[Job], free: list[str], running: list[Running], board: Board) -> None:
    """Start the next job, unless another process has taken it up; a disk's error is the job's."""
    store, config = waiting.pop(0)
    try:
        if not job.to_do(store, config.retry) or state_of(store) == "running":
            board.end(f"{state_of(store):<9} {job_name(config)}  by another process")
        else:
            running.append(start(store, config, free[0]))
            free.pop(0)
    except OSError as error:
        board.end(f"not begun {job_name(config)}  {error}")


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
