"""A job's process, seen from outside: how it is started, watched, and what became of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods import job
from pods.config import Config
from pods.runs.attempts import new_attempt
from pods.runs.store import RunStore

LOOK_SECONDS = 1.0  # between looks at a job's heartbeat
GRACE_SECONDS = 30.0  # a job that hangs may end itself first


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


def job_name(config: Config) -> str:
    """Arm, sizes and seed, for a line on a screen."""
    rule = f"{config.arm or config.sampler.rule} {config.nm.n}->{config.nm.m}"
    return f"{rule:<24} seed {config.seed}"


def start(store: RunStore, config: Config, slot: str) -> Running:
    """Start a run's frozen config in a process of its own, on a slot: a GPU, or some cores.

    Raises:
        OSError: the disk does not take the attempt's folder; nothing was started.
    """
    if store.status().get("error"):
        store.set_status(error=None)  # of an earlier attempt
    attempt = new_attempt(store)
    process = spawn("pods.job", [str(store.folder), str(attempt)], attempt, config, slot)
    return Running(store, config, process, slot, time.monotonic())


def spawn(
    module: str, arguments: Sequence[str], place: Path, config: Config, slot: str
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE ARGUMENTS` for a run, on a slot; PLACE/console.log is its console.

    Raises:
        OSError: the disk does not take the console; nothing was started.
    """
    package = str(Path(__file__).parents[1])  # the job finds us without being installed
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["OMP_NUM_THREADS"] = str(config.hardware.threads)  # jobs must not fight for cores
    if config.hardware.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = slot
    with (place / "console.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip


def end_if_silent(active: Running) -> None:
    """Kill a job that hangs so hard that its own watchdog does not end it."""
    heartbeat = active.store.status().get("heartbeat", 0.0)
    active.silent = active.silent + 1 if heartbeat == active.heartbeat else 0
    active.heartbeat = heartbeat
    limit = active.config.watchdog_seconds
    if limit is not None and active.silent * LOOK_SECONDS > limit + GRACE_SECONDS:
        active.killed = f"no sign of life for {active.silent * LOOK_SECONDS:.0f} s: killed"
        os.killpg(active.process.pid, signal.SIGKILL)


def result(ended: Running) -> str:
    """One line on a job that has ended."""
    store, seconds = ended.store, time.monotonic() - ended.started
    with suppress(OSError):  # a full disk: the lock tells that the run has ended
        if not store.is_held():  # else another process was faster, and runs it
            _note_end(ended)
    status = store.status()
    found = f"accuracy {status['accuracy']:.3f}  " if status["state"] == "done" else ""
    return f"{status['state']:<9} {ended.name}  {found}{seconds:.0f} s"


def _note_end(ended: Running) -> None:
    """Write down what the job could not: one that died without a word is lost, and goes on."""
    status, code = ended.store.status(), ended.process.returncode
    own = code in (job.DONE, job.FAILED, job.AGAIN)
    if status["state"] == "running" or (status["state"] not in ("done", "failed") and not own):
        ended.store.set_status(state="lost", error=ended.killed or death(code))
    elif code == job.FAILED and not status.get("error"):
        ended.store.set_status(error="ended before it began")  # its console says why


def death(code: int) -> str:
    """How a process died that wrote down nothing."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
