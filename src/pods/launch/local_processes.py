"""Start and watch the processes of one run on this machine (not torch's `torchrun`).

    python -m pods.launch.local_processes FOLDER N ARGUMENTS...     `python ARGUMENTS...`, N times

A job whose run uses several processes calls `run`, which starts the command above, which starts the
ranks. To spread a run over several machines, start `pods.launch.job RUN_FOLDER` by torch's
`torchrun` on each of them instead; the run's folder must be on a disk that they share.
"""

import atexit
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from pods.config.schema import Config
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.system.errors import RESUME
from pods.system.machine import LOOPBACK, RENDEZVOUS, launched, python_path
from pods.system.signals import SIGNALS, stop_on_signals

MAIN_PROCESS = "leader.json"
"""File of an attempt: process id of rank 0 and, when it has ended, its exit code."""
FAILURE = "failure.json"
"""File of an attempt: an error of the run that another rank met."""
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0  # from the end of rank 0 to that of the other ranks
TERMINATE_SECONDS = 30.0  # from SIGTERM to SIGKILL
WARNINGS = {signal.SIGUSR1, signal.SIGUSR2}  # a cluster sends them to all; rank 0 reacts


def rank() -> int | None:
    """Return this process's rank, or None if it was not started as one of several processes."""
    return int(os.environ["RANK"]) if launched() else None


def world_size() -> int:
    """Return the number of processes that work on this process's run."""
    return 1 if rank() is None else int(os.environ["WORLD_SIZE"])


def as_started(config: Config) -> Config:
    """Return the config for the number of processes that were started."""
    return config if rank() is None else config.on(world_size())


def count(store: RunStore) -> int:
    """Return how many processes a run uses; 1 if its config is damaged, which the job reports."""
    try:
        return store.config().hardware.processes
    except (ValueError, OSError):
        return 1


def record_main(attempt: Path, code: int | None) -> None:
    """Record rank 0's process id and exit code."""
    replace(attempt / MAIN_PROCESS, json.dumps({"pid": os.getpid(), "code": code}))


def record_failure(attempt: Path, error: Exception) -> None:
    """Record an error of the run on a rank other than 0."""
    text = f"process {rank()}: {type(error).__name__}: {error}".splitlines()[0]
    replace(attempt / FAILURE, json.dumps({"error": text}))


def exit_immediately(code: int) -> NoReturn:
    """Run exit handlers and end this process without finalizing Python.

    The thread that carried the last message may still hold its tensor and need Python to release
    it. If Python is finalizing by then, C++ aborts the process, and the launcher ends all ranks.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed terminal
            stream.flush()
    os._exit(code)


def run(store: RunStore, attempt: Path, failed: int, again: int) -> int:
    """Start a run's processes, wait until they have ended, and return the exit code.

    Args:
        store: of the run.
        attempt: folder of the attempt.
        failed: exit code if a rank met an error of the run.
        again: exit code if a rank died.
    """
    with (
        stop_on_signals() as stop,
        TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True) as folder,
    ):
        launcher, stopping, seconds_since_end = _start(store, attempt, folder), False, 0.0
        while launcher.poll() is None:
            if stop.requested and not stopping:
                stopping = True
                pid = _read(attempt / MAIN_PROCESS).get("pid", launcher.pid)
                with suppress(ProcessLookupError):  # rank 0 stops at a safe point
                    os.kill(pid, signal.SIGTERM)
            if _read(attempt / MAIN_PROCESS).get("code") is not None:
                seconds_since_end += POLL_SECONDS
            if seconds_since_end > GRACE_SECONDS:  # the other ranks hang, with nothing left to do
                launcher.kill()
            time.sleep(POLL_SECONDS)
    if (failure := _read(attempt / FAILURE).get("error")) and store.status()["state"] != "done":
        store.set_status(state="failed", error=failure)
        return failed
    code = _read(attempt / MAIN_PROCESS).get("code")
    if code is not None:
        return int(code)
    print(RESUME, file=sys.stderr)
    deadline = time.monotonic() + GRACE_SECONDS
    while store.is_held() and time.monotonic() < deadline:  # rank 0 may take a moment to die
        time.sleep(POLL_SECONDS)
    if not store.is_held() and store.status()["state"] == "running":
        error = None if stopping else "a process of the run died"
        store.set_status(state="preempted", error=error)
    return again


def _start(store: RunStore, attempt: Path, folder: str) -> Popen[bytes]:
    """Start the launcher in a session of its own, so that Ctrl-C reaches only this process."""
    hardware = store.config().hardware
    launcher = ["-m", "pods.launch.local_processes", folder, str(hardware.processes)]
    job = ["-m", "pods.launch.job", str(store.folder), str(attempt)]
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": str(hardware.threads),
    }
    command = [sys.executable, *launcher, *job]
    return Popen(command, stdin=DEVNULL, start_new_session=True, env=environment)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def environment(folder: Path, world_size: int, rank: int) -> dict[str, str]:
    """Return the environment of a rank; messages stay on this machine unless the user's differs."""
    # as torchrun sets it; torch's default differs
    defaults = {**LOOPBACK, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    return {**defaults, **os.environ, **ranks, RENDEZVOUS: str(folder / "store")}


def main(folder: Path, world_size: int, arguments: Sequence[str]) -> int:
    """Start the ranks and wait until all have ended; if one dies, end all. Return the exit code.

    The folder belongs to the ranks and is removed here too, because its owner may be killed.
    """
    received: set[int] = set()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: received.add(number))
    parent, processes = os.getppid(), list[Popen[bytes]]()
    try:
        for rank in range(world_size):
            command = [sys.executable, *arguments]
            processes.append(Popen(command, env=environment(folder, world_size, rank)))
        return _watch(processes, parent, received)
    finally:
        _end(processes, parent)
        shutil.rmtree(folder, ignore_errors=True)


def _watch(processes: Sequence[Popen[bytes]], parent: int, received: set[int]) -> int:
    """Wait until all ranks have ended well, one has died, or this process has to stop."""
    while received <= WARNINGS and os.getppid() == parent:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                cause = signal.Signals(-code).name if code < 0 else f"code {code}"
                print(f"process {rank} of the run ended by {cause}", file=sys.stderr)
        if any(codes) or None not in codes:
            return int(any(codes))
        time.sleep(POLL_SECONDS)
    return 1


def _end(processes: Sequence[Popen[bytes]], parent: int) -> None:
    """Terminate the ranks that still run; kill them if they hang or the parent is gone."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + TERMINATE_SECONDS
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline or os.getppid() != parent:
            for process in processes:
                process.kill()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
