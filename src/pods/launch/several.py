"""A run on several processes, each of which executes `pods.launch.job`.

On one machine torch's elastic agent (`torch.distributed.run`) starts and watches them; on several
machines, Ray (`ray_backend.py`) or the user's own `torchrun` on each. From `build_trainer` on they
execute the same program, and rank 0 alone writes into the run's folder (`pods.training.trainer`).
"""

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from pods.config.schema import Config
from pods.launch.backend import POLL_SECONDS, forget_end
from pods.launch.failures import classify
from pods.runs.files import replace
from pods.runs.store import RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system import machine
from pods.system.errors import AGAIN, DONE, FAILED, RESUME
from pods.system.signals import PeerLost, Preempted, Stop, stop_on_signals
from pods.system.watchdog import watchdog
from pods.training.clock import TrainClock

REPORT_SECONDS = 10.0  # most errors also occur on rank 0, which then reports them
ROOM_BYTES = 2**16  # more than the processes write into the folder where they meet
STOP_SECONDS = 600  # from a request to stop to the end by force: time for a large checkpoint


def start(store: RunStore, attempt: Path) -> int:
    """Start a run's processes on this machine, wait until they end, and return the exit code.

    The first signal ends the wait: the agent then asks all processes to stop, and waits for them.
    """
    forget_end(store)
    codes: dict[int, int] = {}
    meeting = TemporaryDirectory(prefix="meeting-", dir=attempt.absolute())
    with meeting as folder, stop_on_signals() as stop, suppress(Preempted), stop.while_loading():
        replace(Path(folder) / "room", bytes(ROOM_BYTES))  # an error names the disk; torch's do not
        codes = _launch(store, attempt, Path(folder))
    return end(store, codes)


def _launch(store: RunStore, attempt: Path, folder: Path) -> dict[int, int]:
    """Let torch's agent execute the processes; return the exit code of each rank that failed.

    The agent ends all of them if one fails. Nothing listens on a port: they meet in a folder.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.ERROR)  # the agent logs what `end` says in a line
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(STOP_SECONDS)  # torch 2.11 has 30 s
    os.environ["PYTHONPATH"] = machine.python_path()
    os.environ[machine.PARENT] = str(os.getpid())
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=store.config().hardware.processes,
        max_restarts=0,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=str(folder / "agents"),
        rdzv_configs={"store_type": "file"},
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        signals_to_handle="",  # `Stop` does; the agent's own handlers cut its wait short
    )
    command = ["-P", "-m", "pods.launch.job", store.folder, attempt, folder / "ranks"]
    try:
        elastic_launch(config, sys.executable)(*command)
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    finally:
        logging.disable(logging.NOTSET)
    return {}


def end(store: RunStore, codes: Mapping[int, int]) -> int:
    """Say which processes of a run were killed, and return the exit code of the run.

    Rank 0 has recorded how the run ended, unless it was killed.
    """
    for rank, code in sorted(codes.items()):
        if code < 0:
            cause = machine.cause_of_death(code)
            print(f"process {rank} of the run ended: {cause}", file=sys.stderr)

    status = store.status()
    if status["state"] == "running" and not store.is_held():
        store.set_status(state="preempted", error="a process of the run died")
        print(RESUME, file=sys.stderr)
        return AGAIN

    recorded = status.get("exit_code")
    for rank, code in sorted(codes.items()):
        if rank > 0 and code == FAILED and recorded in (AGAIN, None) and not status.get("error"):
            why = f"process {rank} failed before it could join the others; its console says why"
            store.set_status(error=why, exit_code=FAILED)
            return FAILED
    return AGAIN if recorded is None else int(recorded)


def as_started(config: Config) -> Config:
    """Return the config for the number of processes that were started, by a user's torchrun too."""
    return config.on(int(os.environ["WORLD_SIZE"]))


def take_part(store: RunStore, place: Path | None) -> int:
    """Be another rank than 0: execute the run without writing anything; return the exit code."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for the life of the process)
    with stop_on_signals() as stop:
        try:
            return _execute(store, place, stop)
        except (Preempted, PeerLost):  # rank 0 says why
            return AGAIN


def _execute(store: RunStore, place: Path | None, stop: Stop) -> int:
    """Execute the run on this rank, and tell rank 0 of an error that ends it."""
    config = as_started(store.config())
    machine.set_threads(config.hardware.threads)
    with stop.while_loading():
        from pods.policy.joined import join
        from pods.training.build import build_trainer
        from pods.training.preflight import preflight

        group = join(config.hardware.device, stop, place)

    started = False
    on_hang = partial(group.leave_note, "preempted", AGAIN)
    with watchdog(stop, config.watchdog_seconds, lambda: None, on_hang):
        try:
            with stop.while_loading():
                trainer = build_trainer(
                    config,
                    store,
                    lock=None,
                    tracker=Tracker(),
                    stop=stop,
                    clock=TrainClock(),
                    report=lambda: None,
                    process_group=group,
                )
                preflight(trainer.worker, trainer.loop.prompts, trainer.questions)
            started = True
            trainer.run()
        except Exception as error:
            if group.lost_another(error) or _rank_0_ends(stop):
                return AGAIN
            state, code, text = classify(error, started, store)
            group.leave_note(state, code, text)
            return code
    return DONE


def _rank_0_ends(stop: Stop) -> bool:
    """Return whether rank 0 soon meets an error, too: the launcher then stops this process."""
    deadline = time.monotonic() + REPORT_SECONDS
    while not stop.requested and time.monotonic() < deadline:
        stop.heartbeats += 1
        time.sleep(POLL_SECONDS)
    return stop.requested
