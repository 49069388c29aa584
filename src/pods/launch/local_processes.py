"""The processes of a run that uses several: start and watch them, or be one.

Each executes `pods.launch.job`, rank 0 the run and the others its commands. They are on this
machine, or where Ray places them. Without Ray, to spread a run over several machines, start
`pods.launch.job RUN_FOLDER` by torch's `torchrun` on each of them instead; the run's folder must be
on a disk that they share.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from tempfile import TemporaryDirectory

from pods.config.schema import Config
from pods.launch.backend import POLL_SECONDS
from pods.launch.failures import classify
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.system import machine
from pods.system.errors import AGAIN, DONE, FAILED, RESUME
from pods.system.signals import SIGNALS, PeerLost, Stop, stop_on_signals

FAILURE = "failure.txt"  # file of an attempt: an error of the run that a rank other than 0 met
REPORT_DELAY_SECONDS = 20.0  # most errors while loading also occur on rank 0, which reports them
GRACE_SECONDS = 5.0  # from the end of rank 0 to that of the other ranks
TERMINATE_SECONDS = 30.0  # from SIGTERM to SIGKILL


def rank() -> int | None:
    """Return this process's rank, or None if it was not started as one of several processes."""
    return int(os.environ["RANK"]) if machine.launched() else None


def as_started(config: Config) -> Config:
    """Return the config for the number of processes that were started."""
    if rank() is None:
        return config
    return config.on(int(os.environ["WORLD_SIZE"]))


def environment(folder: Path, world_size: int, rank: int) -> dict[str, str]:
    """Return the environment of a rank; messages stay on this machine unless the user's differs."""
    # as torchrun sets it; torch's default differs
    defaults = machine.LOOPBACK | {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        machine.RENDEZVOUS: str(folder / "store"),
    }
    return defaults | dict(os.environ) | own


def run(store: RunStore, attempt: Path) -> int:
    """Start a run's processes, wait until they have ended, and return the exit code."""
    processes: list[Popen[bytes]] = []
    command = [sys.executable, "-P", "-m", "pods.launch.job", str(store.folder), str(attempt)]
    temporary = TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True)
    with stop_on_signals() as stop, temporary as folder:
        try:
            if machine.RAY in os.environ:
                from pods.launch.ray_processes import start_processes

                processes += start_processes(store, command, attempt.absolute(), stop)
            else:
                for rank in range(store.config().hardware.processes):
                    processes.append(_start(store, command, Path(folder), rank))
            _watch(processes, stop)
        finally:
            _end(processes)

    failure = attempt / FAILURE
    if failure.is_file() and store.status()["state"] != "done":
        store.set_status(state="failed", error=failure.read_text())
        return FAILED
    code = processes[0].wait() if processes else AGAIN
    if code in (DONE, FAILED, AGAIN):
        return code

    print(RESUME, file=sys.stderr)
    if store.status()["state"] == "running":
        error = None if stop.requested else "a process of the run died"
        store.set_status(state="preempted", error=error)
    return AGAIN


def _start(store: RunStore, command: Sequence[str], folder: Path, rank: int) -> Popen[bytes]:
    """Start a rank on this machine; the ranks meet in a folder."""
    hardware = store.config().hardware
    variables = environment(folder, hardware.processes, rank)
    variables["PYTHONPATH"] = machine.python_path()
    variables[machine.PARENT] = str(os.getpid())
    variables["OMP_NUM_THREADS"] = str(hardware.threads)
    # in a session of its own, so that Ctrl-C reaches only the process that starts it
    return Popen(command, stdin=DEVNULL, start_new_session=True, env=variables)


def _watch(processes: Sequence[Popen[bytes]], stop: Stop) -> None:
    """Wait until all ranks have ended or one has died, and pass a request to stop to rank 0."""
    stopping = False
    since_end = 0.0  # seconds since rank 0 has ended
    codes: list[int | None] = [None] * len(processes)
    while None in codes and since_end < GRACE_SECONDS:
        if stop.requested and not stopping:
            stopping = True
            processes[0].terminate()  # it stops at a safe point and tells the others

        time.sleep(POLL_SECONDS)
        codes = [process.poll() for process in processes]
        if codes[0] in (DONE, FAILED, AGAIN):
            since_end += POLL_SECONDS
        elif any(codes):
            break

    rank_0_died = codes[0] not in (DONE, FAILED, AGAIN)
    for rank, code in enumerate(codes):
        if code and (code < 0 or rank_0_died):
            cause = machine.cause_of_death(code)
            print(f"process {rank} of the run ended: {cause}", file=sys.stderr)


def _end(processes: Sequence[Popen[bytes]]) -> None:
    """End the ranks that still run: rank 0 at a safe point if it can, the others immediately."""
    for process in processes[1:]:
        process.kill()

    for process in processes[:1]:
        process.terminate()
        try:
            process.wait(TERMINATE_SECONDS)
        except TimeoutExpired:
            process.kill()

    for process in processes:
        process.wait()


def obey(store: RunStore, attempt: Path | None) -> int:
    """Be another rank than 0: load what it needs, and execute rank 0's commands until it is gone.

    Return the exit code. An error in a command fails the run: the attempt's folder tells `run`.
    """
    machine.end_with_parent(signal.SIGKILL)
    for number in SIGNALS:  # rank 0 handles them
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for the life of the process)
    loaded = False
    try:
        config = as_started(store.config())
        machine.set_threads(config.hardware.threads)
        from pods.policy.process_group import is_connection_error, join
        from pods.training.build import build_worker
        from pods.training.data import load_data
        from pods.training.preflight import preflight
        from pods.training.workers import Follower

        # what a rank loads, as `build_trainer` does for rank 0
        process_group = join(config.hardware.device)
        follower = Follower(process_group)
        data = load_data(config, follower.heartbeat)
        worker = build_worker(config, data, follower.heartbeat, process_group)
        preflight(worker, [*data.prompts, *data.questions])
        loaded = True
        follower.serve(worker)
    except PeerLost:
        return 0
    except Exception as error:
        if not loaded:
            time.sleep(REPORT_DELAY_SECONDS)
        elif is_connection_error(error):
            return 0
        _, code, text = classify(error, loaded, store)
        if code == FAILED and loaded and attempt is not None:
            replace(attempt / FAILURE, f"process {rank()}: {text}")
        return code
    return 0
