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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pods import job
from pods.config import Config
from pods.runs.environment import gpus
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import stop_on_signals
from pods.validate import ConfigError

POLL_SECONDS = 0.05
LAST_LINES = 5


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
    name: str
    process: subprocess.Popen[bytes]
    slot: str
    started: float


def run(configs: Sequence[Config]) -> None:
    """Freeze all jobs, run those with work left, print what happened, draw the figure.

    Raises:
        ConfigError: the jobs cannot share this machine's slots; nothing has been written.
        SweepFailed: some jobs failed or were stopped; the others are done.
    """
    slots = _slots(configs)
    in_order = sorted(configs, key=lambda config: config.seed)  # stable: seed-major
    jobs = {store.folder: (store, c) for c in in_order if (store := RunStore.of(c))}.values()
    to_do = [(store, config) for store, config in jobs if job.to_do(store, config.retry)]
    before = Counter(store.status()["state"] for store, _ in jobs)
    print(f"{len(jobs)} jobs, {before['done']} done before, {len(slots)} at a time")
    if before["failed"] and len(to_do) < len(jobs) - before["done"]:
        print(f"{before['failed']} failed before; retry=failed runs them again")
    stopped = _run_all(to_do, slots)
    not_done = [(s, c) for s, c in jobs if s.status()["state"] != "done"]
    print(f"{len(jobs) - len(not_done)} of {len(jobs)} jobs done")
    if not_done:
        message = "\n".join(_account(store, config) for store, config in not_done)
        raise SweepFailed(message, job.AGAIN if stopped else job.FAILED)
    _draw(configs[0], [store.folder for store, _ in jobs])


def _run_all(jobs: Sequence[tuple[RunStore, Config]], slots: list[str]) -> bool:
    """Run the jobs, one a free slot; return whether the sweep was asked to stop."""
    waiting, free, running, ended = list(jobs), list(slots), list[Running](), 0
    with stop_on_signals() as stop:
        try:
            while running or (waiting and not stop.requested):
                while waiting and free and not stop.requested:
                    running.append(_start(*waiting.pop(0), free.pop(0)))
                if stop.requested:
                    _ask_to_stop(running)
                for active in [r for r in running if r.process.poll() is not None]:
                    running.remove(active)
                    free.append(active.slot)
                    ended += 1
                    print(f"[{ended}/{len(jobs)}] {_result(active)}", flush=True)
                time.sleep(POLL_SECONDS)
        finally:  # also if this process itself fails: no job is left behind
            _ask_to_stop(running)
            for active in running:
                active.process.wait()
        return stop.requested


def _start(store: RunStore, config: Config, slot: str) -> Running:
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
    return Running(store, _name(config), process, slot, time.monotonic())


def _ask_to_stop(running: Sequence[Running]) -> None:
    for active in running:
        active.process.send_signal(signal.SIGTERM)  # does nothing if it has ended


def _slots(configs: Sequence[Config]) -> list[str]:
    """One a GPU that this process may use, or as many as the cores have threads for."""
    devices = sorted({config.hardware.device for config in configs})
    if len(devices) > 1:
        raise ConfigError("hardware.device", ",".join(devices), "must be one for a whole sweep")
    jobs = configs[0].launch.jobs
    if devices == ["cuda"]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = [str(i) for i in range(len(gpus()))] if visible is None else visible.split(",")
        return found[:jobs] or ["0"]
    threads = max(config.hardware.threads for config in configs)
    count = jobs or max(1, len(os.sched_getaffinity(0)) // threads)
    return [str(i) for i in range(count)]


def _name(config: Config) -> str:
    rule = f"{config.arm or config.sampler.rule} {config.nm.n}->{config.nm.m}"
    return f"{rule:<24} seed {config.seed}"


def _result(ended: Running) -> str:
    """One line on a job that has ended; one that died without a word is failed, or lost if killed.

    A killed job (out of memory, a lost node) is taken up by the same command; one that ended
    itself waits for `retry=failed`, as it would do so again.
    """
    store, code = ended.store, ended.process.returncode
    if store.status()["state"] in ("running", "pending") and code not in (job.DONE, job.AGAIN):
        if code < 0:
            store.set_status(state="lost", error=f"killed by {signal.Signals(-code).name}")
        elif not store.status().get("error"):
            store.set_status(state="failed", error=f"exit code {code}")
    status, seconds = store.status(), time.monotonic() - ended.started
    found = f"accuracy {status['accuracy']:.3f}  " if status["state"] == "done" else ""
    return f"{status['state']:<9} {ended.name}  {found}{seconds:.0f} s"


def _account(store: RunStore, config: Config) -> str:
    """Why a job is not done, with the end of its newest console."""
    error = store.status().get("error")
    lines = [f"{state_of(store)}: {_name(config)}: {error or 'not finished'}"]
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
