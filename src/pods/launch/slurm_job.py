"""One job of Slurm, on its machine: execute a run in a process of its own, and requeue it.

How the run's process ends decides what becomes of the job:

    0          the job has ended
    1          the job has failed, for Slurm too
    75, died   the job is requeued; after four tries in a row without a new step it has failed

At submitit's signal, which Slurm sends before a time limit or a preemption, the run commits a
checkpoint and submitit requeues the job. At SIGTERM alone (scancel, or a preemption by Slurm) the
run commits too, and the job waits, because Slurm decides what becomes of it.
"""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission

from pods.launch.backend import Job
from pods.launch.job import has_work_left
from pods.launch.subprocesses import JobProcess, start_job, wait_for_end, wait_until_free
from pods.runs.store import RunStore
from pods.system.errors import DONE, FAILED

TRIES = 4  # without progress: the fault is not this machine's, or all machines have it
WAIT_SECONDS = 3600.0  # after SIGTERM: Slurm requeues only a job that it has killed itself


class JobFailed(Exception):
    """The run is not done; raised so that Slurm calls the job failed, too."""


@dataclass
class SlurmJob:
    """The function that submitit pickles and calls; pickled again when the job is requeued."""

    folder: str
    """Absolute path of the run's folder."""
    cwd: str
    """Folder to which paths in the run's config are relative."""
    tries: int = 1
    """Attempts in a row, this one included, since the run last made a step."""
    step: int = 0
    """Last step of the run when `tries` was last 1."""
    running: JobProcess | None = None
    terminated: bool = False
    """Slurm has sent SIGTERM."""

    def __call__(self) -> None:
        """Execute the run until it ends or the job is requeued.

        Raises:
            JobFailed: the run is not done, and the job is not requeued.
        """
        store = RunStore(Path(self.folder))
        if not wait_until_free(store):
            raise JobFailed(f"{store.folder}: another process runs this; nothing was changed")
        config = store.config()
        if not has_work_left(store, config.retry):  # another job has done it meanwhile
            return
        self.running = start_job(Job(store, config), cwd=Path(self.cwd))
        signal.signal(signal.SIGTERM, self._terminate)  # submitit's own handler ignores it
        code = wait_for_end(self.running)
        if code == FAILED:
            raise JobFailed(f"{store.folder}: {store.status().get('error')}")
        if code == DONE:
            return
        if self.terminated:
            time.sleep(WAIT_SECONDS)
        elif (step := self._last_step()) > self.step or self.tries < TRIES:
            self.tries = 1 if step > self.step else self.tries + 1
            self.step = step
            signal.raise_signal(signal.Signals[f"SIG{JobEnvironment.USR_SIG}"])  # requeues the job
        raise JobFailed(f"{store.folder}: not requeued")

    def checkpoint(self) -> DelayedSubmission:
        """Stop the run at a checkpoint, and return the submission that resumes it.

        submitit calls this at its signal.
        """
        if self.running is not None and self.running.process.poll() is None:
            self.running.process.terminate()
            with suppress(ChildProcessError):  # the signal may have interrupted `wait` itself
                os.waitid(os.P_PID, self.running.process.pid, os.WEXITED | os.WNOWAIT)
            self.tries, self.step = 1, self._last_step()
        return DelayedSubmission(replace(self, running=None, terminated=False))

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        if self.running is not None:
            self.running.process.terminate()

    def _last_step(self) -> int:
        return int(RunStore(Path(self.folder)).status().get("step", 0))
