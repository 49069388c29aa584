"""Execute the jobs of a sweep on Slurm, as arrays that submitit submits and watches.

A job executes its run's frozen config on a disk that the machines share. Slurm owns what is
submitted: if this process ends, the jobs continue, and the same command watches them again.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import submitit
from submitit.core.utils import FailedJobError
from submitit.helpers import DelayedSubmission

from pods.config.parse import ConfigError
from pods.config.schema import BudgetConfig, Config
from pods.launch import subprocesses
from pods.launch.backend import REFRESH_SECONDS, Backend, Job
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import JobProcess, record_end, status_line
from pods.runs.attempts import queued, set_queued
from pods.runs.status import state_of
from pods.system.errors import DONE
from pods.system.machine import python_path
from pods.system.signals import Stop, stop_on_signals

START_MINUTES = 30
STEPS_ONLY_MINUTES = 24 * 60
WAIT_SECONDS = 3600.0  # after SIGTERM: Slurm requeues only a job that it has killed itself
MAX_NOTICE = 600  # seconds before the limit in which a run ends a step and writes a checkpoint
COMMON = {
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
}
"""Parameters that submitit knows on every cluster; the others have the prefix `slurm_`."""
EXECUTOR = ("cluster", "submitit_folder", "max_num_timeout")
"""Settings of submitit's executor rather than of a job."""
Settings = dict[str, Any]


class Submitted(NamedTuple):
    """A job of the sweep, and submitit's handle of it in Slurm."""

    job: Job
    handle: "submitit.Job[None]"


def slurm_backend(configs: Sequence[Config], settings: Settings) -> Backend:
    """Return Slurm as a backend, with the settings of `hydra.launcher`; or raise `ConfigError`."""
    if settings["cluster"] == "slurm" and submitit.SlurmExecutor.affinity() < 0:
        raise ConfigError("launch", "slurm", "needs srun; is this machine in a Slurm cluster?")
    return Backend(configs[0].launch.jobs or len(configs), partial(_run_jobs, settings=settings))


def parameters(config: Config, settings: Settings) -> Settings:
    """Return submitit's parameters for one job: the user's settings and, by default, the config's.

    A job is one task whatever `hardware.processes` is, because it starts the processes itself. One
    that reaches its time limit commits and is requeued: half an hour to start and twice the
    training clock, which counts neither evaluations nor checkpoints, or a day without a
    budget of seconds.
    """
    given = _of_jobs(settings)
    minutes = given.get("timeout_min", _minutes(config.budget))
    chosen: Settings = {"timeout_min": minutes, "signal_delay_s": min(MAX_NOTICE, 6 * minutes)}

    hardware = config.hardware
    if "cpus_per_gpu" not in given:
        chosen["cpus_per_task"] = hardware.threads * hardware.processes
    if hardware.device == "cuda" and "gres" not in given and "gpus_per_task" not in given:
        chosen["gpus_per_node"] = hardware.processes
    if config.launch.jobs:
        chosen["array_parallelism"] = config.launch.jobs

    chosen |= given
    if "cpus_per_task" in chosen:  # srun does not take it from sbatch
        chosen["srun_args"] = [f"--cpus-per-task={chosen['cpus_per_task']}"]
    return {key if key in COMMON else f"slurm_{key}": value for key, value in chosen.items()}


def _of_jobs(settings: Settings) -> Settings:
    """Return the settings of `hydra.launcher` that are set and belong to a job."""
    given = {}
    for key, value in settings.items():
        if value is not None and key not in EXECUTOR:
            given[key] = value
    return given


def _minutes(budget: BudgetConfig) -> int:
    """Return the default time limit of a job."""
    if budget.train_seconds is None:
        return STEPS_ONLY_MINUTES
    return START_MINUTES + ceil(2 * budget.train_seconds / 60)


def _run_jobs(jobs: Sequence[Job], settings: Settings) -> bool:
    """Submit the jobs that Slurm does not have yet, and watch all of them until they have ended."""
    watched = _still_queued(jobs, settings)
    known = {submitted.job.store.folder for submitted in watched}
    new = [job for job in jobs if job.store.folder not in known and _is_free(job)]
    with stop_on_signals() as stop:
        for array in _arrays(new, settings):
            if not stop.requested:
                watched += _submit(array, settings)
        _watch(watched, stop)
        if stop.requested and watched:
            print(
                f"{len(watched)} jobs remain in Slurm's queue (scancel ends them); "
                "the same command watches them again"
            )
        return stop.requested


def _is_free(job: Job) -> bool:
    """Return whether no process runs a job, here or on a machine that Slurm knows nothing of."""
    elsewhere = state_of(job.store) == "running" and not queued(job.store)
    return not elsewhere and not job.store.is_held()


def _arrays(jobs: Sequence[Job], settings: Settings) -> list[list[Job]]:
    """Divide jobs into arrays, in each of which all have the same parameters."""
    arrays: dict[str, list[Job]] = {}
    for job in jobs:
        arrays.setdefault(repr(parameters(job.config, settings)), []).append(job)
    return list(arrays.values())


def _watch(watched: list[Submitted], stop: Stop) -> None:
    """Report jobs that end, and remove them from the list, until it is empty or asked to stop."""
    began = time.monotonic()
    with LiveTable(len(watched)) as live_table:
        while watched and not stop.requested:
            time.sleep(REFRESH_SECONDS)
            ended = [submitted for submitted in watched if submitted.handle.done()]
            for submitted in ended:
                watched.remove(submitted)
                store = submitted.job.store
                if not submitted.handle.paths.result_pickle.exists():  # else the job recorded it
                    record_end(store, f"{queued(store)} ended without recording a result")
                live_table.end(status_line(submitted.job, time.monotonic() - began))
            live_table.show([submitted.job.store for submitted in watched])


def _still_queued(jobs: Sequence[Job], settings: Settings) -> list[Submitted]:
    """Return the jobs that an earlier command submitted and that wait or run in Slurm."""
    if settings["cluster"] != "slurm":
        return []
    folder = Path(settings["submitit_folder"]).absolute()
    submitted = []  # all of them before the first question, so that submitit asks Slurm once
    for job in jobs:
        name = queued(job.store)
        if name:
            number = name.rpartition(" ")[2]
            submitted.append(Submitted(job, submitit.SlurmJob(folder, number)))
    return [
        entry for entry in submitted if not entry.handle.done() and entry.handle.state != "UNKNOWN"
    ]


def _submit(jobs: Sequence[Job], settings: Settings) -> list[Submitted]:
    """Submit jobs with the same parameters as one array."""
    chosen = parameters(jobs[0].config, settings)
    folder = Path(settings["submitit_folder"]).absolute()
    executor = submitit.AutoExecutor(
        folder,
        cluster=settings["cluster"],
        slurm_max_num_timeout=settings["max_num_timeout"],
    )
    executor.update_parameters(**chosen)

    os.environ["PYTHONPATH"] = python_path()  # which sbatch hands to the jobs
    tasks = [SlurmJob(str(job.store.folder.absolute()), str(Path.cwd())) for job in jobs]
    # sbatch must not die of Ctrl-C, with or without an array in the queue; this process stops after
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        with executor.batch():
            handles = [executor.submit(task) for task in tasks]
    except FailedJobError as error:
        why = str(error).strip() or "sbatch failed without a message"
        raise ConfigError("launch", "slurm", why.splitlines()[-1].strip()) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    for job, handle in zip(jobs, handles, strict=True):
        set_queued(job.store, f"Slurm job {handle.job_id}")
    array = handles[0].job_id.partition("_")[0]
    minutes = chosen["timeout_min"]
    print(f"submitted {len(jobs)} jobs as {array}, {minutes} min each ({folder})", flush=True)
    return [Submitted(job, handle) for job, handle in zip(jobs, handles, strict=True)]


@dataclass
class SlurmJob:
    """What submitit pickles, calls on the job's machine, and pickles again for a requeued job.

    At submitit's signal, which Slurm sends before a time limit or a preemption, the run commits a
    checkpoint and submitit requeues the job. At SIGTERM alone (scancel, or a preemption by Slurm)
    the run commits too, and the job waits, because Slurm decides what becomes of it.
    """

    folder: str  # absolute path of the run's folder
    cwd: str
    running: JobProcess | None = None
    terminated: bool = False  # Slurm has sent SIGTERM

    def __call__(self) -> None:
        """Execute the run until it ends or the job is requeued.

        A run that is not done raises an error, so that Slurm calls the job failed, too.
        """
        self.running = subprocesses.start_on_cluster(self.folder, self.cwd)
        if self.running is None:
            return
        signal.signal(signal.SIGTERM, self._terminate)  # submitit's own handler ignores it
        code = subprocesses.wait_for_end(self.running)
        if self.terminated:
            time.sleep(WAIT_SECONDS)
        if code != DONE:
            error = self.running.job.store.status().get("error")
            raise RuntimeError(f"{self.folder}: {error or 'not finished'}")

    def checkpoint(self) -> DelayedSubmission:
        """Stop the run at a checkpoint, at submitit's signal; return what resumes it."""
        if self.running is not None and self.running.process.poll() is None:
            self.running.stop()
            with suppress(ChildProcessError):  # the signal may have interrupted `wait` itself
                os.waitid(os.P_PID, self.running.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(replace(self, running=None, terminated=False))

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        if self.running is not None:
            self.running.stop()
