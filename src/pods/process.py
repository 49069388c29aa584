"""A job's process, seen from outside: how it is started, watched, and what became of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pods.config import Config
from pods.machine import python_path
from pods.runs.attempts import new_attempt
from pods.runs.store import RunStore
from pods.trouble import AGAIN, DONE, FAILED

POLL_SECONDS = 0.05
LOOK_SECONDS = 1.0  # between looks at a job's heartbeat
GRACE_SECONDS = 30.0  # a job that hangs may end itself first


class Process(Protocol):
    """What is needed of a job's process, fresh or forked; the names are `subprocess.Popen`'s."""

    pid: int

    def poll(self) -> int | None: ...  # noqa: D102
    def wait(self) -> int: ...  # noqa: D102
    def terminate(self) -> None: ...  # noqa: D102


class Server(Protocol):
    """What is needed of a fork server (`launch/fork_server.py`)."""

    def spawn(  # noqa: D102
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        stdout: int,
        stderr: int,
    ) -> Process: ...


@dataclass
class Running:
    """A job's process."""

    store: RunStore
    config: Config
    process: Process
    devices: tuple[str, ...]
    started: float
    heartbeat: float = 0.0
    """As last seen in the job's status; only whether it changes counts, not the clock it is of."""
    silent: int = 0
    """Looks since it changed: not seconds, so that a machine that was suspended does not count."""
    killed: str | None = None
    """Why, if it was by us."""


def job_name(config: Config) -> str:
    """Arm, sizes and seed, for a line on a screen."""
    rule = f"{config.arm or config.sampler.rule} {config.nm.n}->{config.nm.m}"
    return f"{rule:<24} seed {config.seed}"


def start(
    store: RunStore,
    config: Config,
    devices: tuple[str, ...],
    cwd: Path | None = None,
    server: Server | None = None,
) -> Running:
    """Start a run's frozen config in a process of its own.

    Args:
        store: of the run.
        config: the frozen one.
        devices: GPUs it has to itself; none: those that the environment names.
        cwd: what paths in the config are relative to; None: this process's.
        server: forks the process; None: it is started afresh.

    Raises:
        OSError: the disk does not take the attempt's folder, or the server has died; nothing was
            started.
    """
    if store.status().get("error"):
        store.set_status(error=None, exit_code=None)  # of an earlier attempt
    attempt = new_attempt(store)
    words = [str(store.folder), str(attempt)]
    process = spawn("pods.job", words, attempt, config, devices, cwd, server)
    return Running(store, config, process, devices, time.monotonic())


def spawn(
    module: str,
    arguments: Sequence[str],
    place: Path,
    config: Config,
    devices: tuple[str, ...],
    cwd: Path | None = None,
    server: Server | None = None,
) -> Process:
    """Start `python -m MODULE ARGUMENTS` for a run; PLACE/console.log is its console.

    Raises:
        OSError: the disk does not take the console, or the server has died; nothing was started.
    """
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment["OMP_NUM_THREADS"] = str(config.hardware.threads)  # jobs must not fight for cores
    if devices and config.hardware.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    with (place / "console.log").open("wb") as output:
        if server is not None:
            console = output.fileno()
            return server.spawn([module, *arguments], environment, cwd, console, console)
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, cwd=cwd, start_new_session=True,
        )  # fmt: skip


def attend(active: Running) -> int:
    """Wait for a job to end, and see that it does; return its exit code.

    What ends this process's waiting (a cluster's request, as an exception) ends the job too, which
    commits first.
    """
    looked = time.monotonic()
    try:
        while active.process.poll() is None:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                end_if_silent(active)
    except BaseException:
        active.process.terminate()
        active.process.wait()
        raise
    finally:
        print(result(active), flush=True)
    return active.process.wait()


def end_if_silent(active: Running) -> None:
    """Kill a job that hangs so hard that its own watchdog does not end it."""
    heartbeat = active.store.status().get("heartbeat", 0.0)
    active.silent = active.silent + 1 if heartbeat == active.heartbeat else 0
    active.heartbeat = heartbeat
    limit = active.config.watchdog_seconds
    if limit is not None and active.silent * LOOK_SECONDS > limit + GRACE_SECONDS:
        active.killed = f"no sign of life for {active.silent * LOOK_SECONDS:.0f} s: killed"
        with suppress(ProcessLookupError):  # it ended after all
            os.killpg(active.process.pid, signal.SIGKILL)


def result(ended: Running) -> str:
    """One line on a job that has ended."""
    with suppress(OSError):  # a full disk: the lock tells that the run has ended
        if not ended.store.is_held():  # else another process was faster, and runs it
            _note_end(ended)
    return ended_line(ended.store, ended.config, time.monotonic() - ended.started)


def ended_line(store: RunStore, config: Config, seconds: float) -> str:
    """How a run stands whose job has ended, after so many seconds."""
    status = store.status()
    accuracy = status.get("accuracy") if status["state"] == "done" else None
    found = "" if accuracy is None else f"accuracy {accuracy:.3f}  "
    return f"{status['state']:<9} {job_name(config)}  {found}{seconds:.0f} s"


def _note_end(ended: Running) -> None:
    """Write down what the job could not: one that died without a word is lost, and goes on."""
    status, code = ended.store.status(), ended.process.wait()
    own = code in (DONE, FAILED, AGAIN)
    if status["state"] == "running" or (status["state"] not in ("done", "failed") and not own):
        ended.store.set_status(state="lost", error=ended.killed or death(code))
    elif code == FAILED and not status.get("error"):
        why = "ended before it began"  # its console says more
        ended.store.set_status(error=why, exit_code=FAILED)


def death(code: int) -> str:
    """How a process died that wrote down nothing."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
