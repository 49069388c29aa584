"""A sweep: freeze many runs, let a backend execute them, report, and draw the figure.

All configs are frozen before the first job starts. Jobs run seed by seed, so that a sweep that is
stopped has equally many seeds of every arm, and no job can take down another.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.analysis.series_names import differing
from pods.config.schema import Config
from pods.launch.backend import Backend, Job
from pods.launch.job import has_work_left
from pods.launch.noisy import restart_noisy
from pods.launch.subprocesses import Heartbeat
from pods.runs.freeze import freeze
from pods.runs.history import clocks
from pods.runs.identity import identity_keys
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.console import lossy_console, printable
from pods.system.errors import AGAIN, FAILED, FIX_AND_RESUME, as_text, is_machine_error
from pods.system.load import warn_if_busy
from pods.system.signals import stop_on_signals
from pods.tasks.load import check_data

LAST_LINES = 5
TAIL_BYTES = 16 * 1024
POLL_SECONDS = 0.5
LONGEST_VALUE = 16  # last characters of a value that a job's name shows


class SweepFailed(Exception):
    """Some jobs are not done; the message lists them."""

    def __init__(self, message: str, code: int) -> None:
        """Keep the exit code of the whole sweep."""
        super().__init__(message)
        self.code = code


@lossy_console()
def run(configs: Sequence[Config], backend: Backend, figure: bool = True) -> None:
    """Execute all runs that have work left, print how they ended, and draw the figure if wanted.

    Raises:
        SweepFailed: some jobs failed or were stopped; the others are done.
    """
    check_data(config.task for config in configs)
    seed_major = sorted(configs, key=lambda config: config.seed)  # stable
    varied = varied_values(seed_major)
    by_folder = {
        store.folder: Job(store, config, varied=values)
        for config, values in zip(seed_major, varied, strict=True)
        if (store := freeze(config))
    }
    jobs = list(by_folder.values())
    restart_noisy(jobs)
    states = Counter(state_of(job.store) for job in jobs)
    at_once = min(backend.at_once, len(jobs))
    print(f"{len(jobs)} jobs, {states['done']} already done, {at_once} at a time", flush=True)
    if not backend.memory.roomy:
        print(f"memory: {backend.memory.text}", flush=True)
    if states["failed"] and any(job.config.retry not in ("failed", "all") for job in jobs):
        print(f"{states['failed']} failed earlier; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} already running")
    if jobs[0].config.launch.on == "local" and states["done"] < len(jobs):
        warn_if_busy(jobs[0].config.hardware.device, own_jobs=states["running"])
    stopped = _run_all(jobs, backend)
    not_done = [job for job in jobs if job.store.status()["state"] != "done"]
    print(f"{len(jobs) - len(not_done)} of {len(jobs)} jobs done")
    if not_done:
        failed = [job for job in not_done if _has_failed(job.store)]
        messages = [_explain(job) for job in (failed if stopped else not_done)]
        messages += [_stopped_line(jobs)] if stopped else []
        raise SweepFailed("\n".join(messages), FAILED if failed and not stopped else AGAIN)
    if figure:
        _draw(jobs)


def varied_values(configs: Sequence[Config]) -> list[str]:
    """Say for each config in which science keys it differs from others with its arm, n and m.

    Without the seed, which a job's name has; keys by their last part, and long values cut.
    """
    arms = [(config.arm_name(), config.nm.n, config.nm.m) for config in configs]
    values = [{**identity_keys(config), "seed": None} for config in configs]
    by_arm = defaultdict[tuple[str, int, int], list[dict[str, Any]]](list)
    for arm, of_config in zip(arms, values, strict=True):
        by_arm[arm].append(of_config)
    keys = {arm: differing(of_arm) for arm, of_arm in by_arm.items()}
    return [
        " ".join(f"{k.rpartition('.')[2]}={str(of[k])[-LONGEST_VALUE:]}" for k in keys[arm])
        for arm, of in zip(arms, values, strict=True)
    ]


def _run_all(jobs: Sequence[Job], backend: Backend) -> bool:
    """Execute jobs, wait for those that other processes run, and return whether asked to stop.

    A job that another process drops is taken over, but only once: it may die here as well.
    """
    ready = [job for job in jobs if has_work_left(job.store, job.config.retry)]
    external: list[_ExternalJob] = []
    while True:
        outcome = backend.run(ready)
        external += map(_ExternalJob, outcome.external)
        if outcome.stopped or not external:
            return outcome.stopped
        print(f"waiting for {len(external)} jobs that other processes run", flush=True)
        with stop_on_signals() as stop:
            while not (ended := [each for each in external if not each.is_alive()]):
                if stop.requested:
                    return True
                time.sleep(POLL_SECONDS)
        external = [each for each in external if each not in ended]
        ready = [
            each.job
            for each in ended
            if not each.is_running() and has_work_left(each.job.store, each.job.config.retry)
        ]


class _ExternalJob:
    """A job that another process runs and for which this sweep waits."""

    def __init__(self, job: Job) -> None:
        """Start to watch the job's heartbeat."""
        self.job, self.heartbeat = job, Heartbeat(job.store, POLL_SECONDS)

    def is_running(self) -> bool:
        """Return whether a process runs the job or has not released its lock yet."""
        return self.job.store.is_held() or state_of(self.job.store) == "running"

    def is_alive(self) -> bool:
        """Poll the job, and return whether it runs and its heartbeat has changed in time."""
        seconds, limit = self.heartbeat.silent_seconds(), self.job.config.watchdog_seconds
        return self.is_running() and (limit is None or seconds < limit)


def _has_failed(store: RunStore) -> bool:
    """Return whether the run itself failed; the machine interrupted all others."""
    status = store.status()
    return status["state"] == "failed" or status.get("exit_code") == FAILED


def _stopped_line(jobs: Sequence[Job]) -> str:
    """Return a line with the states of a stopped sweep's jobs."""
    states = [state_of(job.store) for job in jobs]
    known = {state: states.count(state) for state in ("done", "failed", "running")}
    begun = sum(
        state not in known and bool(clocks(job.store))
        for job, state in zip(jobs, states, strict=True)
    )
    counts = {
        **known,
        "committed a checkpoint": begun,
        "not begun": len(jobs) - sum(known.values()) - begun,
    }
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"stopped: of {len(jobs)} jobs {text}; the same command resumes"


def _explain(job: Job) -> str:
    """Return why a job is not done, with the last lines of its newest console."""
    error = job.store.status().get("error")
    lines = [f"{state_of(job.store)}: {job.name}: {error or 'not finished'}"]
    consoles = sorted((job.store.folder / "attempts").glob("*/console.log"))
    if error and consoles:
        lines += [f"    {line}" for line in _tail(consoles[-1])] + [f"    ({consoles[-1]})"]
    return printable("\n".join(lines))


def _tail(console: Path) -> list[str]:
    """Return a console's last lines without reading the rest, which may be large."""
    try:
        with console.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return [as_text(error)]


def _draw(jobs: Sequence[Job]) -> None:
    """Draw the figure of the jobs' study.

    Raises:
        SweepFailed: the disk refuses to be written.
    """
    from pods.analysis.draw import draw

    config = jobs[0].config
    try:
        for line in draw(Path(config.runs_dir) / config.study, [job.store.folder for job in jobs]):
            print(line)
    except ValueError as error:
        print(f"no figure: {printable(str(error))}")
    except OSError as error:
        temporary = is_machine_error(error)
        message = f"no figure: {printable(as_text(error))}" + f"\n{FIX_AND_RESUME}" * temporary
        raise SweepFailed(message, AGAIN if temporary else FAILED) from error
