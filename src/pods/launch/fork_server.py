"""Fork jobs from a process that has imported their libraries: a job starts in 1 s, not in 6 s.

That process is the `forkserver` of Python's multiprocessing. Forking is safe because it runs no
torch operation and has one thread. A job is asked to stop if its server or its sweep dies.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from pods.system.machine import end_process, end_with_parent, set_threads
from pods.system.signals import SIGNALS

Main = Callable[[Sequence[str]], int]  # takes the arguments of a program and returns its exit code
LIBRARIES = ("hydra", "pods.launch.sweep", "pods.launch.dry_run", "pods.training.build",
             "pods.training.preflight")  # fmt: skip
"""What a job imports beyond `run.py`, which multiprocessing imports in the server by itself."""
TRACKER = "wandb.apis.public"  # most of what `wandb.init` needs


class ForkedProcess(ForkServerProcess):
    """A forked process, with the methods of `subprocess.Popen` that a job needs."""

    pid: int  # known once the process has started

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs; 255 if its server died."""
        return self.exitcode

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        self.join()
        return self.exitcode or 0


def start_server(modules: Sequence[str], threads: int) -> None:
    """Start the server, which imports these modules, with this number of threads for torch."""
    set_threads(threads)
    forkserver.set_forkserver_preload(list(modules))

    safe_path = os.environ.get("PYTHONSAFEPATH", "")
    os.environ["PYTHONSAFEPATH"] = "1"  # no file of the working folder hides a library
    try:
        resource_tracker.ensure_running()  # it unblocks signals when it starts, so not below
        # the server must outlive a signal to all, such as Ctrl-C, because jobs end after it
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    finally:
        os.environ["PYTHONSAFEPATH"] = safe_path  # an empty one has no effect


def fork(
    main: Main, words: Sequence[str], environment: Mapping[str, str], console: Path
) -> ForkedProcess:
    """Call `main(words)` in a forked process with a session of its own, or raise `OSError`."""
    arguments = (main, list(words), dict(environment), console)
    process = ForkedProcess(target=_execute, args=arguments)
    try:
        process.start()
    except EOFError as error:
        raise ChildProcessError("the fork server died") from error
    return process


def _execute(main: Main, words: list[str], environment: Mapping[str, str], console: Path) -> None:
    """Give a forked process the state of a new one, call `main`, and end."""
    import numpy as np

    gc.freeze()  # collections then leave the memory alone that the jobs share
    os.setsid()
    end_with_parent(signal.SIGTERM)
    threading.Thread(target=_end_with_sweep, daemon=True).start()
    with console.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()  # otherwise all jobs would inherit the server's state
    sys.argv = [main.__module__, *words]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_process(main(words))


def _end_with_sweep() -> None:
    """Ask this process to stop when the one that asked for it has ended."""
    sweep = parent_process()
    if sweep is not None:
        sweep.join()
        os.kill(os.getpid(), signal.SIGTERM)
