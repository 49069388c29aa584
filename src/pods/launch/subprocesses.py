"""A job's process as its parent sees it: start it, wait for it, and record how it ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods.config.schema import Config
from pods.launch import evaluation
from pods.launch.backend import Job
from pods.launch.fork_server import ForkedProcess, ForkServer
from pods.runs.attempts import new_attempt
from pods.runs.store import RunStore
from pods.system.errors import AGAIN, DONE, FAILED
from pods.system.machine import python_path

POLL_SECONDS = 0.05
HEARTBEAT_POLL_SECONDS = 1.0
GRACE_SECONDS = 30.0  # past the timeout of the job's own watchdog, which should end it first
STALE_LOCK_SECONDS = 120.0
"""A stopped job may commit for this long, and a shared disk keep the lock of a dead machine."""


@dataclass
class Heartbeat:
    """The heartbeat in a run's status.json, polled at fixed intervals.

    Only whether it changes counts, because clocks of machines differ. Missed polls are counted, not
    seconds, so that a machine that was suspended does not take a job for one that hangs.
    """

    store: RunStore
    poll_seconds: float
    last: float = 0.0
    missed_polls: int = 0
    """Polls since the heartbeat changed."""

    def silent_seconds(self) -> float:
        """Poll the heartbeat, and return for how long it has not changed."""
        heartbeat = self.store.status().get("heartbeat", 0.0)
        self.missed_polls = self.missed_polls + 1 if heartbeat == self.last else 0
        self.last = heartbeat
        return self.missed_polls * self.poll_seconds


@dataclass
class JobProcess:
    """A job and the process that executes it."""

    job: Job
    process: subprocess.Popen[bytes] | ForkedProcess
    devices: tuple[str, ...]
    attempt: Path
    """Folder with the process's console."""
    started: float
    """Value of `time.monotonic()` when the process started."""
    heartbeat: Heartbeat
    kill_reason: str | None = None
    """Why this process killed the job, if it did."""


def start_job(
    job: Job,
    devices: tuple[str, ...] = (),
    cwd: Path | None = None,
    server: ForkServer | None = None,
) -> JobProcess:
    """Start a process that executes a job.

    Args:
        job: to execute.
        devices: GPUs that only this job uses; empty: those in CUDA_VISIBLE_DEVICES.
        cwd: folder to which paths in the config are relative; None: that of this process.
        server: forks the process; None: start a new Python.

    Raises:
        OSError: nothing was started, because the disk refused the attempt's folder or the fork
            server has died.
    """
    store = job.store
    if not job.evaluate and store.status().get("error"):
        store.set_status(error=None, exit_code=None)  # of an earlier attempt
    attempt = new_attempt(store, "reevaluations" if job.evaluate else "attempts")
    arguments = ["pods.launch.job", str(store.folder), str(attempt)]
    if job.evaluate:
        arguments += ["--evaluate", *(f"{point.step}:{point.test_set}" for point in job.evaluate)]
        sets_path = job.config.evaluation.sets_path
        arguments += [] if sets_path is None else ["--sets-path", sets_path]
    environment = _environment(job.config, devices)
    with (attempt / "console.log").open("wb") as console:
        process: subprocess.Popen[bytes] | ForkedProcess
        if server is not None:
            output = console.fileno()
            process = server.spawn(arguments, environment, cwd, output, output)
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )
    heartbeat = Heartbeat(store, HEARTBEAT_POLL_SECONDS)
    return JobProcess(job, process, devices, attempt, time.monotonic(), heartbeat)


def _environment(config: Config, devices: Sequence[str]) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment["OMP_NUM_THREADS"] = str(config.hardware.threads)  # jobs must not fight for cores
    if devices and config.hardware.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment


def wait_for_end(running: JobProcess) -> int:
    """Wait until a job has ended, print how, and return its exit code.

    An exception that interrupts the wait, such as a cluster's request to stop, stops the job first:
    it commits a checkpoint and ends.
    """
    last_poll = time.monotonic()
    try:
        while running.process.poll() is None:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - last_poll >= HEARTBEAT_POLL_SECONDS:
                last_poll = time.monotonic()
                check_heartbeat(running)
    except BaseException:
        running.process.terminate()
        running.process.wait()
        raise
    finally:
        print(finish(running), flush=True)
    return running.process.wait()


def check_heartbeat(running: JobProcess) -> None:
    """Kill a training job that hangs so hard that its own watchdog cannot end it."""
    limit = running.job.config.watchdog_seconds
    if limit is None or running.job.evaluate:
        return
    seconds = running.heartbeat.silent_seconds()
    if seconds > limit + GRACE_SECONDS:
        running.kill_reason = f"no heartbeat for {seconds:.0f} s: killed"
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.killpg(running.process.pid, signal.SIGKILL)


def finish(ended: JobProcess) -> str:
    """Record how a job ended if it could not do so itself, and return its line for the screen."""
    code = ended.process.wait()
    cause = ended.kill_reason or _cause_of_death(code)
    if ended.job.evaluate:
        known = code in (DONE, FAILED, AGAIN)
        return evaluation.summary(ended.job.store, ended.attempt, None if known else cause)
    with suppress(OSError):  # on a full disk the released lock tells that the run has ended
        record_end(ended.job.store, cause, code)
    return status_line(ended.job, time.monotonic() - ended.started)


def record_end(store: RunStore, error: str, code: int | None = None) -> None:
    """Record how a job ended if the job could not do so itself.

    A run that still says `running` although no process holds it becomes `lost`: the same command
    resumes it.

    Args:
        store: of the run.
        error: how its job ended.
        code: exit code of the job's process; None: not known, as on a cluster.
    """
    status = store.status()
    if status["state"] in ("done", "failed") or store.is_held():  # held: another process runs it
        return
    if status["state"] == "running" or code not in (DONE, FAILED, AGAIN, None):
        store.set_status(state="lost", error=error)
    elif code == FAILED and not status.get("error"):
        why = "the job ended before the run began"  # its console has details
        store.set_status(error=why, exit_code=FAILED)
    elif code is None and status["state"] == "pending":
        store.set_status(error=error)


def status_line(job: Job, seconds: float) -> str:
    """Return a line with a run's state, name and accuracy after its job ended."""
    status = job.store.status()
    accuracy = status.get("accuracy") if status["state"] == "done" else None
    result = "" if accuracy is None else f"accuracy {accuracy:.3f}  "
    return f"{status['state']:<9} {job.name}  {result}{seconds:.0f} s"


def wait_until_free(store: RunStore) -> bool:
    """Wait until no process holds a run, for a limited time, and return whether that is so."""
    deadline = time.monotonic() + STALE_LOCK_SECONDS
    while store.is_held():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _cause_of_death(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
