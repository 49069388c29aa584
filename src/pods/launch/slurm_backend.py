"""Execute the jobs of a sweep on Slurm, as arrays that submitit submits and watches.

A job executes its run's frozen config (`slurm_job.py`) on a disk that the machines share. Slurm
owns what is submitted: if this process ends, the jobs continue, and the same command watches them
again.
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import submitit
from submitit.core.utils import FailedJobError

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.launch.backend import Backend, Job, Outcome
from pods.launch.live_table import LiveTable
from pods.launch.slurm_job import SlurmJob
from pods.launch.slurm_resources import Settings, max_concurrent, parameters
from pods.launch.subprocesses import record_end, status_line
from pods.memory.fit import describe_largest
from pods.runs.attempts import queued, set_queued
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.machine import python_path
from pods.system.signals import Stop, stop_on_signals

POLL_SECONDS = 0.5
REMAIN = {
    "slurm": "remain in Slurm's queue (scancel ends them); the same command watches them again",
    "local": "are processes of this machine and may still run",
}


def slurm_backend(configs: Sequence[Config], settings: Settings) -> Backend:
    """Return Slurm as a backend, with the settings of `hydra.launcher`.

    Raises:
        ConfigError: this machine cannot submit to Slurm; nothing has been written.
    """
    if settings["cluster"] == "slurm" and submitit.SlurmExecutor.affinity() < 0:
        raise ConfigError("launch", "slurm", "needs srun; is this machine in a Slurm cluster?")
    at_once = max_concurrent(configs, settings)
    return Backend(at_once, describe_largest(configs, None), partial(_run_jobs, settings=settings))


@dataclass
class _Submitted:
    """A job that Slurm has, as submitit shows it."""

    job: Job
    handle: "submitit.Job[None]"
    since: float = field(default_factory=time.monotonic)


def _run_jobs(jobs: Sequence[Job], settings: Settings) -> Outcome:
    """Submit the jobs that Slurm does not have yet, and watch all of them."""
    watched = _still_queued(jobs, settings)
    queued_runs = {each.job.store.folder for each in watched}
    others = [job for job in jobs if job.store.folder not in queued_runs]
    external = [job for job in others if _is_run_elsewhere(job.store)]
    arrays: dict[str, list[Job]] = {}
    for job in others:
        if job not in external:
            arrays.setdefault(repr(parameters(job.config, settings)), []).append(job)
    with stop_on_signals() as stop:
        for array in arrays.values():
            if stop.requested:
                break
            handles = _submit(array, settings)
            watched += map(_Submitted, array, handles)
        with LiveTable(len(watched)) as live_table:
            _watch(watched, stop, live_table)
        if stop.requested and watched:
            print(f"{len(watched)} jobs {REMAIN[settings['cluster']]}")
        return Outcome(stop.requested, external)


def _slurm_id(store: RunStore) -> str | None:
    """Return Slurm's id of the job to which the run was last submitted."""
    name = queued(store)
    return name.rpartition(" ")[2] if name and name.startswith("Slurm job ") else None


def _still_queued(jobs: Sequence[Job], settings: Settings) -> list[_Submitted]:
    """Return the jobs that an earlier command submitted and that wait or run in Slurm."""
    if settings["cluster"] != "slurm":
        return []
    submitted = [
        _Submitted(job, submitit.SlurmJob(_folder(settings), slurm_id))
        for job in jobs
        if (slurm_id := _slurm_id(job.store))
    ]  # all of them before the first question, so that submitit asks Slurm once
    return [each for each in submitted if not each.handle.done() and each.handle.state != "UNKNOWN"]


def _folder(settings: Settings) -> Path:
    return Path(settings["submitit_folder"]).absolute()


def _is_run_elsewhere(store: RunStore) -> bool:
    """Return whether another process runs a run; if its Slurm job has gone, record that."""
    if store.is_held() or (state_of(store) == "running" and _slurm_id(store) is None):
        return True
    if queued(store):
        record_end(store, f"{queued(store)} ended without recording a result")
    return False


def _submit(jobs: Sequence[Job], settings: Settings) -> "list[submitit.Job[None]]":
    """Submit jobs as one array, and note each one's id in its run's folder.

    Raises:
        ConfigError: Slurm refuses them.
    """
    chosen, folder = parameters(jobs[0].config, settings), _folder(settings)
    executor = submitit.AutoExecutor(
        folder, cluster=settings["cluster"], slurm_max_num_timeout=settings["max_num_timeout"]
    )
    executor.update_parameters(**chosen)
    os.environ["PYTHONPATH"] = python_path()  # for jobs that are processes of this machine
    # sbatch must not die of Ctrl-C, with or without an array in the queue; this process stops after
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        with executor.batch():
            handles = [
                executor.submit(SlurmJob(str(job.store.folder.absolute()), str(Path.cwd())))
                for job in jobs
            ]
    except FailedJobError as error:
        why = str(error).strip() or "sbatch failed without a message"
        raise ConfigError("launch", "slurm", why.splitlines()[-1].strip()) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for job, handle in zip(jobs, handles, strict=True):
        set_queued(job.store, f"Slurm job {handle.job_id}")
    print(
        f"submitted {len(jobs)} jobs as {handles[0].job_id.partition('_')[0]}, "
        f"{max_concurrent([job.config for job in jobs], settings)} at a time, "
        f"{chosen['timeout_min']} min each ({folder})",
        flush=True,
    )
    return handles


def _watch(watched: list[_Submitted], stop: Stop, live_table: LiveTable) -> None:
    """Show the state of jobs until all have ended or this process is asked to stop."""
    while watched and not stop.requested:
        time.sleep(POLL_SECONDS)
        for ended in [each for each in watched if each.handle.done()]:
            watched.remove(ended)
            store = ended.job.store
            if (
                not ended.handle.paths.result_pickle.exists()
            ):  # else the job's own process recorded it
                record_end(store, f"{queued(store)} ended without recording a result")
            live_table.end(status_line(ended.job, time.monotonic() - ended.since))
        stores = [each.job.store for each in watched]
        running = [store.folder for store in stores if state_of(store) == "running"]
        live_table.show(running, len(watched) - len(running))
