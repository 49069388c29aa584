"""One run as several processes: torchrun starts them, and this process waits for them.

    python -m pods.torchrun ...        torchrun itself, which ends with whoever started it

A run that is started by hand on several machines has no such process: torchrun on each of them
starts `pods.job RUN_FOLDER`, and the folder is on a disk that all of them share.
"""

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pods.config import Config
from pods.machine import end_with_parent, python_path
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.stop import GO_ON, stop_on_signals

LEADER = "leader.json"  # of an attempt: pid of the process that leads, and its exit code at the end
FAILURE = "failure.json"  # of an attempt: an error that a process met which does not lead
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0  # from the end of the process that leads to that of the others


def rank() -> int | None:
    """Which of a run's processes this is; None where torchrun did not start it."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


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
    """The config for as many processes as torchrun has started, whatever it was frozen for."""
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
    with stop_on_signals() as stop:
        process, asked, ended = _start(store, attempt), False, 0.0
        while process.poll() is None:
            if stop.requested and not asked:
                asked = True
                _ask_to_stop(process, attempt)
            if _leader(attempt).get("code") is not None:
                ended += POLL_SECONDS
            if ended > GRACE_SECONDS:  # the others hang, and have nothing to do any more
                process.kill()
            time.sleep(POLL_SECONDS)
    failure = _read(attempt / FAILURE).get("error")
    if failure is not None and store.status()["state"] != "done":
        store.set_status(state="failed", error=failure)
        return failed
    code = _leader(attempt).get("code")
    if code is not None:
        return int(code)
    print(GO_ON, file=sys.stderr)
    until = time.monotonic() + GRACE_SECONDS
    while store.is_held() and time.monotonic() < until:  # it may take a moment to die
        time.sleep(POLL_SECONDS)
    if not store.is_held() and store.status()["state"] == "running":
        store.set_status(state="preempted", error=None if asked else "a process of the run died")
    return again


def _start(store: RunStore, attempt: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: a Ctrl-C is ours to pass on, to the process that leads alone."""
    hardware = store.config().hardware
    options = ["--standalone", f"--nproc-per-node={hardware.processes}", "--module", "pods.job"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment["OMP_NUM_THREADS"] = str(hardware.threads)  # or torchrun has its own idea
    return subprocess.Popen(
        [sys.executable, "-m", "pods.torchrun", *options, str(store.folder), str(attempt)],
        stdin=subprocess.DEVNULL, start_new_session=True,
        env=environment,
    )  # fmt: skip


def _ask_to_stop(process: subprocess.Popen[bytes], attempt: Path) -> None:
    """Let the process that leads come to a safe point; end all where it is not there yet."""
    pid = _leader(attempt).get("pid")
    with suppress(ProcessLookupError):
        os.kill(process.pid if pid is None else pid, signal.SIGTERM)


def _leader(attempt: Path) -> dict[str, Any]:
    return _read(attempt / LEADER)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def main() -> int:
    """Be torchrun, without its long report: which process died is a line."""
    end_with_parent(signal.SIGKILL)
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    try:
        torchrun.main(sys.argv[1:])
    except ChildFailedError as error:
        for number, failure in error.failures.items():
            how = failure.signal_name() if failure.exitcode < 0 else f"code {failure.exitcode}"
            print(f"process {number} of the run ended by {how}", file=sys.stderr)
        return 1
    except SignalException:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
