"""One job of Slurm, on its machine: a run's frozen config in a process of its own, and requeues.

    0          the job is over
    1          it failed, for Slurm too
    75, died   it is requeued; without a step in between, so many times, and then it failed

The preemption or time-out signal of submitit makes the process commit and end, and requeues the
job. At SIGTERM alone (scancel, or Slurm's own preemption) it commits too, and waits: what becomes
of the job is then Slurm's to say.
"""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission

from pods.job import to_do
from pods.launch.lease import is_free
from pods.process import Running, attend, start
from pods.runs.store import RunStore
from pods.trouble import DONE, FAILED

TRIES = 4  # in a row that got no further: it is not the machine, or all machines are bad
STAY_SECONDS = 3600.0  # after SIGTERM: one that ends by itself is not requeued; Slurm kills it


class JobFailed(Exception):
    """The run is not done; so that Slurm calls the job failed, too."""


@dataclass
class SlurmJob:
    """What submitit runs, pickles and, at a requeue, pickles again."""

    folder: str
    """Of the run; absolute."""
    cwd: str
    """What paths in its config are relative to."""
    tries: int = 1
    step: int = 0
    """Where the run stood when the tries were last counted from one."""
    active: Running | None = None
    told: bool = False
    """Whether SIGTERM has come."""

    def __call__(self) -> None:
        """Run, to the end or until the job is requeued.

        Raises:
            JobFailed: the run is not done, and the job is not requeued.
        """
        store = RunStore(Path(self.folder))
        if not is_free(store):
            raise JobFailed(f"{store.folder}: another process runs this; nothing was changed")
        config = store.config()
        if not to_do(store, config.retry):  # another job has done it meanwhile
            return
        self.active = start(store, config, (), Path(self.cwd))
        signal.signal(signal.SIGTERM, self._tell)  # submitit's own handler is deaf to it
        code = attend(self.active)
        if code == FAILED:
            raise JobFailed(f"{store.folder}: {store.status().get('error')}")
        if code == DONE:
            return
        if self.told:
            time.sleep(STAY_SECONDS)
        elif self.tries < TRIES or self._step() > self.step:
            signal.raise_signal(_preemption())  # submitit's way to a requeue
        raise JobFailed(f"{store.folder}: not requeued")

    def checkpoint(self) -> DelayedSubmission:
        """Have the run commit and end; return what goes on with it. Called at submitit's signal."""
        own, step = False, self._step()
        if self.active is not None:
            own = self.active.process.poll() is not None and not self.told
            self.active.process.terminate()
            with suppress(ChildProcessError):  # `wait` may be what this signal has interrupted
                os.waitid(os.P_PID, self.active.process.pid, os.WEXITED | os.WNOWAIT)
        if own and step <= self.step:
            return DelayedSubmission(SlurmJob(self.folder, self.cwd, self.tries + 1, step))
        return DelayedSubmission(SlurmJob(self.folder, self.cwd, step=step))

    def _tell(self, number: int, frame: FrameType | None) -> None:
        """Hand SIGTERM on."""
        self.told = True
        if self.active is not None:
            self.active.process.terminate()

    def _step(self) -> int:
        return int(RunStore(Path(self.folder)).status().get("step", 0))


def _preemption() -> signal.Signals:
    """The signal that submitit takes for a preemption."""
    return signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
