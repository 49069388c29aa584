"""One run as several processes of this machine: one starts them, and this one waits for it.

    python -m pods.torchrun FOLDER N WORDS...     N times `python WORDS...`, which meet in FOLDER

A run that is started by hand on several machines has neither: torchrun on each of them starts
`pods.job RUN_FOLDER`, and the folder is on a disk that all of them share.
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

from pods.config import Config
from pods.machine import RENDEZVOUS, launched, python_path
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.stop import GO_ON, SIGNALS, stop_on_signals

LEADER = "leader.json"  # of an attempt: pid of the process that leads, and its exit code at the end
FAILURE = "failure.json"  # of an attempt: an error that a process met which does not lead
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0  # from the end of the process that leads to that of the others
END_SECONDS = 30.0  # from SIGTERM to SIGKILL
WARNINGS = {signal.SIGUSR1, signal.SIGUSR2}  # a cluster sends them to all; the leader's to heed


def rank() -> int | None:
    """Which of a run's processes this is; None where it was not started as one of several."""
    return int(os.environ["RANK"]) if launched() else None


def size() -> int:
    """How many processes this one's run has."""
    return 1 if rank() is None else int(os.environ["WORLD_SIZE"])


def note(attempt: Path, code: int | None) -> None:
    """Write down, as the process that leads, who that is and how it ended."""
    replace(attempt / LEADER, json.dumps({"pid": os.getpid(), "code": code}))


def note_failure(attempt: Path, error: Exception) -> None:
    """Write down, as one that follows, what of the run went wrong here."""
    text = f"process {rank()}: {type(error).__name__}: {error}".splitlines()[0]
    replace(attempt / FAILURE, json.dumps({"error": text}))


def leave(code: int) -> NoReturn:
    """End one of a run's processes at once, after what others have asked Python to do at its end.

    A thread that carried the last message may hold its tensor yet. To let go of it needs Python: if
    that is ending by then, C++ aborts the process, and torchrun ends all others for it.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a terminal that went away
            stream.flush()
    os._exit(code)


def at_hand(config: Config) -> Config:
    """The config for as many processes as were started, whatever it was frozen for."""
    return config if rank() is None else config.on(size())


def processes(store: RunStore) -> int:
    """How many processes a run is to have; 1 where its config cannot be read: the job says so."""
    try:
        return store.config().hardware.processes
    except (ValueError, OSError):
        return 1


def run(store: RunStore, attempt: Path, failed: int, again: int) -> int:
    """Start a run's processes and wait for their end; return the exit code.

    Args:
        store: of the run.
        attempt: its folder.
        failed: the exit code where one of them has met an error of the run.
        again: the exit code where one of them dies.
    """
    with (
        stop_on_signals() as stop,
        TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True) as place,
    ):
        process, asked, ended = _start(store, attempt, place), False, 0.0
        while process.poll() is None:
            if stop.requested and not asked:
                asked = True
                _ask_to_stop(process, attempt)
            if _read(attempt / LEADER).get("code") is not None:
                ended += POLL_SECONDS
            if ended > GRACE_SECONDS:  # the others hang, and have nothing to do any more
                process.kill()
            time.sleep(POLL_SECONDS)
    if (failure := _read(attempt / FAILURE).get("error")) and store.status()["state"] != "done":
        store.set_status(state="failed", error=failure)
        return failed
    code = _read(attempt / LEADER).get("code")
    if code is not None:
        return int(code)
    print(GO_ON, file=sys.stderr)
    until = time.monotonic() + GRACE_SECONDS
    while store.is_held() and time.monotonic() < until:  # it may take a moment to die
        time.sleep(POLL_SECONDS)
    if not store.is_held() and store.status()["state"] == "running":
        store.set_status(state="preempted", error=None if asked else "a process of the run died")
    return again


def _start(store: RunStore, attempt: Path, place: str) -> Popen[bytes]:
    """In a session of its own: a Ctrl-C is ours to pass on, to the process that leads alone."""
    hardware = store.config().hardware
    job = ["-m", "pods.job", str(store.folder), str(attempt)]
    command = [sys.executable, "-m", "pods.torchrun", place, str(hardware.processes), *job]
    ours = {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": str(hardware.threads)}
    return Popen(command, stdin=DEVNULL, start_new_session=True, env={**os.environ, **ours})


def _ask_to_stop(process: Popen[bytes], attempt: Path) -> None:
    """Let the process that leads come to a safe point; end all where it is not there yet."""
    pid = _read(attempt / LEADER).get("pid")
    with suppress(ProcessLookupError):
        os.kill(process.pid if pid is None else pid, signal.SIGTERM)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def environment(place: Path, count: int, number: int) -> dict[str, str]:
    """What tells a process which one it is, and keeps messages on this machine unless told else."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    asked = {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": f"={loopback}"}
    asked["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"  # torchrun's default, not torch's
    told = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(count)}
    return {**asked, **os.environ, **told, RENDEZVOUS: str(place / "store")}


def main(place: Path, count: int, words: Sequence[str]) -> int:
    """Start `count` processes and see them end, all where one dies; return the exit code.

    `place`, which is theirs alone, is removed here too: who made it may have been killed.
    """
    asked: set[int] = set()
    for heard in SIGNALS:
        if signal.getsignal(heard) != signal.SIG_IGN:
            signal.signal(heard, lambda number, _: asked.add(number))
    parent, processes = os.getppid(), []
    try:
        for number in range(count):
            processes.append(Popen([sys.executable, *words], env=environment(place, count, number)))
        return _watch(processes, parent, asked)
    finally:
        _end(processes, parent)
        shutil.rmtree(place, ignore_errors=True)


def _watch(processes: Sequence[Popen[bytes]], parent: int, asked: set[int]) -> int:
    """Wait until all have ended well, or for a reason to end them: say which one died."""
    while asked <= WARNINGS and os.getppid() == parent:
        codes = [process.poll() for process in processes]
        for number, code in enumerate(codes):
            if code:
                how = signal.Signals(-code).name if code < 0 else f"code {code}"
                print(f"process {number} of the run ended by {how}", file=sys.stderr)
        if any(codes) or None not in codes:
            return int(any(codes))
        time.sleep(POLL_SECONDS)
    return 1


def _end(processes: Sequence[Popen[bytes]], parent: int) -> None:
    """End those that are left; at once if whoever waits for them is gone."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + END_SECONDS
    while any(process.poll() is None for process in processes):
        if time.monotonic() > until or os.getppid() != parent:
            for process in processes:
                process.kill()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
