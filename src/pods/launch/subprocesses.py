"""A job's process as its parent sees it: start it, wait for it, and record how it ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pods.config.schema import Config
from pods.launch.backend import POLL_SECONDS, REFRESH_SECONDS, Job, forget_end, has_work_left
from pods.launch.fork_server import ForkedProcess, fork
from pods.launch.job import main
from pods.runs.attempts import new_attempt
from pods.runs.store import RunStore
from pods.system.errors import AGAIN, DONE, FAILED
from pods.system.machine import PARENT, cause_of_death, python_path

GRACE_SECONDS = 30.0  # past the timeout of the job's own watchdog, which should end it first
STALE_LOCK_SECONDS = 120.0
"""A stopped job may commit for this long, and a shared disk keep the lock of a dead machine."""


@dataclass
class JobProcess:
    """A job and the process that executes it."""

    job: Job
    process: subprocess.Popen[bytes] | ForkedProcess
    devices: tuple[str, ...]
    started: float = field(default_factory=time.monotonic)
    heartbeat: float = 0.0
    missed_polls: int = 0
    """Polls since the heartbeat in status.json changed.

    They are not seconds, so that a machine that was suspended does not take a job for one that
    hangs.
    """
    kill_reason: str | None = None  # why this process killed the job, if it did
    records: bool = True  # its end is that of the run: false of other ranks than 0

    def stop(self) -> None:
        """Ask the process to stop; one that is suspended goes on, to hear it."""
        self.process.terminate()
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(self.process.pid, signal.SIGCONT)


def start_job(job: Job, devices: tuple[str, ...] = (), forked: bool = False) -> JobProcess:
    """Start a process that executes a job: a new Python, or a fork of one that has the libraries.

    The job has the GPUs in CUDA_VISIBLE_DEVICES for itself, or `devices` if there are any. On an
    `OSError` nothing was started.
    """
    forget_end(job.store)
    attempt = new_attempt(job.store)
    console = (attempt / "console.log").absolute()
    arguments = [str(job.store.folder), str(attempt)]
    environment = _environment(job.config, devices)
    if forked:
        return JobProcess(job, fork(main, arguments, environment, console), devices)

    return JobProcess(job, _start_python(arguments, environment, console), devices)


def start_rank(job: Job, attempt: Path, variables: dict[str, str]) -> JobProcess:
    """Start one of several processes of a run, whose rank is in these environment variables."""
    console = attempt / f"console.{variables['RANK']}.log"
    environment = _environment(job.config, ()) | variables
    arguments = [str(job.store.folder), str(attempt)]
    process = _start_python(arguments, environment, console)
    return JobProcess(job, process, (), records=variables["RANK"] == "0")


def _start_python(
    arguments: Sequence[str], environment: Mapping[str, str], console: Path
) -> "subprocess.Popen[bytes]":
    """Execute `pods.launch.job` in a new Python, with a session of its own."""
    with console.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "pods.launch.job", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, PARENT: str(os.getpid())},
            start_new_session=True,
        )


def _environment(config: Config, devices: Sequence[str]) -> dict[str, str]:
    """Return the environment of a job, which has these devices for itself."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = python_path()
    environment["OMP_NUM_THREADS"] = str(config.hardware.threads)  # jobs must not fight for cores
    if devices and config.hardware.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment


def start_on_cluster(folder: str, cwd: str) -> JobProcess | None:
    """Start a frozen run on a machine of a cluster; None if another job has done it meanwhile.

    Paths in its config are relative to `cwd`. `BlockingIOError`: another process still runs it.
    """
    job = job_on_cluster(folder, cwd)
    return None if job is None else start_job(job)


def job_on_cluster(folder: str, cwd: str) -> Job | None:
    """Go to `cwd`, and return a frozen run as a job; None if another job has done it meanwhile.

    `BlockingIOError`: another process still runs it.
    """
    store = RunStore(Path(folder))
    if not await_release(store):  # the process of a job that was requeued may still commit
        raise BlockingIOError(f"{folder}: another process runs this; nothing was changed")

    config = store.config()
    if not has_work_left(store, config):
        return None
    os.chdir(cwd)
    return Job(store, config)


def await_release(store: RunStore) -> bool:
    """Wait until no process holds a run, which one that stops does until it has committed.

    Return False if one still holds it after `STALE_LOCK_SECONDS`.
    """
    deadline = time.monotonic() + STALE_LOCK_SECONDS
    while store.is_held():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def wait_for_end(running: JobProcess) -> int:
    """Wait until a job has ended, print how, and return its exit code.

    An exception that interrupts the wait, such as a cluster's request to stop, stops the job first:
    it commits a checkpoint and ends.
    """
    try:
        while running.process.poll() is None:
            time.sleep(REFRESH_SECONDS)
            check_heartbeat(running)
    except BaseException:
        running.stop()
        raise
    finally:  # once it has ended
        print(finish(running), flush=True)
    return running.process.wait()


def check_heartbeat(running: JobProcess) -> None:
    """Kill a training job that hangs so hard that its own watchdog cannot end it."""
    limit = running.job.config.watchdog_seconds
    heartbeat = running.job.store.status().get("heartbeat", 0.0)
    if heartbeat == running.heartbeat:
        running.missed_polls += 1
    else:
        running.missed_polls = 0
    running.heartbeat = heartbeat

    seconds = running.missed_polls * REFRESH_SECONDS
    if limit is not None and seconds > limit + GRACE_SECONDS:
        running.kill_reason = f"no heartbeat for {seconds:.0f} s: killed"
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.killpg(running.process.pid, signal.SIGKILL)


def finish(ended: JobProcess) -> str:
    """Record how a job ended if it could not do so itself, and return its line for the screen."""
    code = ended.process.wait()
    cause = ended.kill_reason or cause_of_death(code)
    if ended.records:
        with suppress(OSError):  # on a full disk the released lock tells that the run has ended
            record_end(ended.job.store, cause, code)
    return status_line(ended.job, time.monotonic() - ended.started)


def record_end(store: RunStore, error: str, code: int | None = None) -> None:
    """Record how a job ended if the job could not do so itself; None: its code is not known.

    A run that still says `running` although no process holds it becomes `lost`: the same command
    resumes it. What the job recorded stays: a signal may reach it after that, while it exits.
    """
    status = store.status()
    recorded = status["state"] in ("done", "failed") or status.get("exit_code") is not None
    if recorded or store.is_held():  # held: another process runs it
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
    text = f"{status['state']:<9} {job.name}  "
    accuracy = status.get("accuracy")
    if accuracy is not None and status["state"] == "done":
        text += f"accuracy {accuracy:.3f}  "
    return f"{text}{seconds:.0f} s"
