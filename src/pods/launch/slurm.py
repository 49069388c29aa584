"""The jobs of a sweep on Slurm, through submitit: arrays, seed by seed.

A job executes its run's frozen config (`slurm_job`), on a disk that the machines share. Slurm owns
what is submitted: a client that goes away changes nothing, and the same command watches it again.
"""

import getpass
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import submitit
from submitit.core.utils import FailedJobError

from pods.board import Board
from pods.config import Config
from pods.launch.lease import note_end
from pods.launch.place import Job, Outcome, Place
from pods.launch.sbatch import Settings, at_a_time, parameters
from pods.launch.slurm_job import SlurmJob
from pods.machine import python_path
from pods.memory.fit import wants
from pods.process import ended_line
from pods.runs.attempts import queued, set_queued
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.stop import Stop, stop_on_signals
from pods.validate import ConfigError

ASK_SECONDS = 15.0  # between questions to Slurm, at most; less while the sweep is young
POLL_SECONDS = 0.1
LEFT = "are left to Slurm (scancel ends them); the same command watches them again"
LEFT_HERE = "are processes of this machine: those that Ctrl-C did not reach go on"
GONE_LOOKS = 2  # without a job in the queue before it has ended: its last words may be on their way


def place(configs: Sequence[Config], settings: Settings) -> Place:
    """Slurm, with the settings of `hydra.launcher`.

    Raises:
        ConfigError: Slurm is not here, or does not answer; nothing has been written.
    """
    if settings["cluster"] == "slurm" and _ask() is None:
        raise ConfigError("launch", "slurm", "squeue does not answer; try again later")
    return Place(at_a_time(configs, settings), wants(configs), partial(_run_all, settings=settings))


@dataclass
class _Watched:
    """A job in Slurm's hands."""

    store: RunStore
    config: Config
    id: str
    absent: int = 0
    since: float = field(default_factory=time.monotonic)


def _run_all(jobs: Sequence[Job], settings: Settings) -> Outcome:
    """Submit what Slurm does not have yet, and watch all of it."""
    local: list[submitit.Job[None]] = []
    ask = _ask if settings["cluster"] == "slurm" else partial(_alive, local)
    here = ask()
    if here is None:
        print("Slurm does not answer: nothing was submitted")
        return Outcome(stopped=True)
    watched = [_Watched(s, c, id) for s, c in jobs if (id := _id(s)) in here and id]
    given = {watch.store.folder for watch in watched}
    others = [(s, c) for s, c in jobs if s.folder not in given]
    elsewhere = [(s, c) for s, c in others if _runs_elsewhere(s)]
    left = [one for one in others if one not in elsewhere]
    with stop_on_signals() as stop:
        for group in _alike(left, settings):
            if stop.requested:
                break
            made = _submit(group, settings)
            local += made
            watched += [_Watched(s, c, m.job_id) for (s, c), m in zip(group, made, strict=True)]
        with Board(len(watched)) as board:
            _watch(watched, ask, stop, board)
        if stop.requested and watched:
            print(f"{len(watched)} jobs {LEFT if settings['cluster'] == 'slurm' else LEFT_HERE}")
        return Outcome(stop.requested, elsewhere)


def _id(store: RunStore) -> str | None:
    """Slurm's id of the job that the run was last given to."""
    name = queued(store)
    return name.rpartition(" ")[2] if name and name.startswith("Slurm job ") else None


def _runs_elsewhere(store: RunStore) -> bool:
    """Whether a process runs it; what says so, and was a job that Slurm no longer has, is lost."""
    if store.is_held() or (state_of(store) == "running" and _id(store) is None):
        return True
    if queued(store):
        _note_end(store)
    return False


def _note_end(store: RunStore) -> None:
    job = queued(store)
    note_end(store, f"{job} ended without a word", f"{job} ended before the run began")


def _alike(jobs: Sequence[Job], settings: Settings) -> list[list[Job]]:
    """Jobs that ask for the same and so can be one array, in their order."""
    groups: dict[str, list[Job]] = {}
    for store, config in jobs:
        groups.setdefault(repr(parameters(config, settings)), []).append((store, config))
    return list(groups.values())


def _submit(jobs: Sequence[Job], settings: Settings) -> "list[submitit.Job[None]]":
    """Submit jobs as one array, and note in each run's folder which job has it.

    Raises:
        ConfigError: Slurm refuses them.
    """
    asked = parameters(jobs[0][1], settings)
    folder = Path(settings["submitit_folder"]).absolute()
    executor = submitit.AutoExecutor(
        folder, cluster=settings["cluster"], slurm_max_num_timeout=settings["max_num_timeout"]
    )
    executor.update_parameters(**asked)
    os.environ["PYTHONPATH"] = python_path()  # for jobs that are processes of this machine
    try:
        with _deaf(), executor.batch():
            made = [executor.submit(SlurmJob(str(store.folder.absolute()), str(Path.cwd())))
                    for store, _ in jobs]  # fmt: skip
    except FailedJobError as error:
        why = str(error).strip() or "sbatch ended without a word"
        raise ConfigError("launch", "slurm", why.splitlines()[-1].strip()) from error
    for (store, _), job in zip(jobs, made, strict=True):
        set_queued(store, f"Slurm job {job.job_id}")
    print(f"submitted {len(made)} jobs as {made[0].job_id.partition('_')[0]}, "
          f"{at_a_time([config for _, config in jobs], settings)} at a time, "
          f"{asked['timeout_min']} min each ({folder})", flush=True)  # fmt: skip
    return made


@contextmanager
def _deaf() -> Iterator[None]:
    """Within the block, processes are started that a terminal's Ctrl-C or end does not reach.

    sbatch would else die with or without an array in the queue; this process hears of it after.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(
    watched: list[_Watched], ask: Callable[[], set[str] | None], stop: Stop, board: Board
) -> None:
    """Show how jobs stand until all have left the queue, or this process is told to stop."""
    begun, asked = time.monotonic(), 0.0
    while watched and not stop.requested:
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        if now - asked < min(ASK_SECONDS, 1 + (now - begun) / 20):
            continue
        asked, here = now, ask()
        for watch in watched:  # no answer tells nothing
            watch.absent = 0 if here is None or watch.id in here else watch.absent + 1
        for gone in [watch for watch in watched if watch.absent >= GONE_LOOKS]:
            watched.remove(gone)
            _note_end(gone.store)
            board.end(ended_line(gone.store, gone.config, now - gone.since))
        running = [w.store.folder for w in watched if state_of(w.store) == "running"]
        board.show(running, len(watched) - len(running))


def _ask() -> set[str] | None:
    """Ids of this user's jobs that wait or run; None: Slurm does not answer now.

    Raises:
        ConfigError: there is no Slurm here.
    """
    try:
        listed = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
    except FileNotFoundError:
        raise ConfigError("launch", "slurm", "squeue is not here: is this a machine of a Slurm "
                          "cluster?") from None  # fmt: skip
    except subprocess.SubprocessError:
        return None
    return set(listed.split())


def _alive(jobs: "list[submitit.Job[None]]") -> set[str]:
    """Ids of jobs that are processes of this machine, and have not ended."""
    return {job.job_id for job in jobs if not job.done()}
