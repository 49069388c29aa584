"""Fork jobs from a process that has imported their libraries: a job starts in 1 s, not in 6 s.

That process is the fork server of `multiprocessing`. Forking is safe because it runs no torch
operation and has one thread. A job is asked to stop if its server or the sweep's process dies.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

from pods.system.machine import end_process, end_with_parent, set_threads
from pods.system.signals import SIGNALS

Main = Callable[[Sequence[str]], int]  # takes the arguments of a program and returns its exit code
PRELOADED = ("pods.training.build", "pods.training.preflight")
TRACKER = "wandb.apis.public"  # most of what `wandb.init` needs


class ForkedProcess(ForkServerProcess):
    """A forked process, with the methods of `subprocess.Popen` that a job needs."""

    pid: int  # which it has once it has started

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs; 255 if its server died."""
        return self.exitcode

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        self.join()
        return self.exitcode or 0


def prepare(threads: int, tracking: bool) -> None:
    """Say what the server imports, and with how many threads for torch, at the first fork."""
    get_context("forkserver").set_forkserver_preload([TRACKER] * tracking + [*PRELOADED])
    set_threads(threads)


def fork(
    main: Main, words: Sequence[str], environment: Mapping[str, str], cwd: Path, console: Path
) -> ForkedProcess:
    """Call `main(words)` in a forked process with a session of its own, or raise `OSError`."""
    process = ForkedProcess(target=_be, args=(main, list(words), dict(environment), cwd, console))
    own, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    safe = os.environ.setdefault("PYTHONSAFEPATH", "")  # of the server: no file here is a library
    os.environ["PYTHONSAFEPATH"] = "1"
    resource_tracker.ensure_running()  # which unblocks signals when it starts, so not below
    # the server must outlive a signal to all, such as Ctrl-C, because jobs end after it
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        process.start()  # with an empty main module: the child would import this process's
    except EOFError as error:
        raise ChildProcessError("the fork server died") from error
    finally:
        sys.modules["__main__"] = own
        os.environ["PYTHONSAFEPATH"] = safe  # an empty one has no effect
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    return process


def _be(
    main: Main, words: list[str], environment: Mapping[str, str], cwd: Path, console: Path
) -> None:
    """Give a forked process the state of a new one, call `main`, and end."""
    import numpy as np

    gc.freeze()  # collections then leave the memory alone that the jobs share
    os.setsid()
    end_with_parent(signal.SIGTERM)
    threading.Thread(target=_end_with_sweep, daemon=True).start()
    with console.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()  # otherwise all jobs would inherit the server's state
    sys.argv = [main.__module__, *words]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_process(main(words))


def _end_with_sweep() -> None:
    """Ask this process to stop when the one that asked for it has ended."""
    if (sweep := parent_process()) is not None:
        sweep.join()
        os.kill(os.getpid(), signal.SIGTERM)
