"""The main program of ranks 1 and higher: load what a rank needs and execute rank 0's commands."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pods.config.schema import Config
from pods.launch import local_processes
from pods.runs.store import RunStore
from pods.system.machine import end_with_parent, set_threads
from pods.system.signals import SIGNALS, PeerLost

if TYPE_CHECKING:
    from pods.training.commands import CommandChannel
    from pods.training.worker import Worker

REPORT_DELAY_SECONDS = 20.0  # most errors while loading also occur on rank 0, which reports them


def main(store: RunStore, attempt: Path | None) -> int:
    """Execute commands until rank 0 has no more or is gone, and return the exit code.

    An error in a command fails the run: the attempt's folder tells `local_processes.run`.
    """
    end_with_parent(signal.SIGKILL)
    for number in SIGNALS:  # rank 0 handles them
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for the life of the process)
    try:
        worker, commands = _load(local_processes.as_started(store.config()))
    except PeerLost:
        return 0
    except Exception as error:
        time.sleep(REPORT_DELAY_SECONDS)
        if isinstance(error, ValueError):
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exception(error)
        return 1
    from pods.policy.process_group import is_connection_error
    from pods.training.worker_group import serve

    try:
        serve(worker, commands)
    except PeerLost:
        return 0
    except Exception as error:
        if is_connection_error(error):
            return 0
        traceback.print_exception(error)
        if attempt is not None:
            local_processes.record_failure(attempt, error)
        return 1
    return 0


def _load(config: Config) -> "tuple[Worker, CommandChannel]":
    set_threads(config.hardware.threads)
    from pods.policy.process_group import join
    from pods.training.build import build_worker, load_data
    from pods.training.commands import CommandChannel
    from pods.training.preflight import preflight

    process_group = join(config.hardware.device)
    commands = CommandChannel(process_group)
    data = load_data(config, commands.heartbeat)
    worker = build_worker(config, data, commands.heartbeat, process_group)
    preflight(worker, data.all_prompts())
    return worker, commands
