"""A process that has imported what jobs need, and forks each of them: a start of 1 s, not of 6.

    python -m pods.launch.fork_server THREADS MODULE...     the server; its stdin is a socket

The sweep's process holds a `ForkServer` and asks it for jobs; for each it gets a `Forked`, which
shows the job as `subprocess.Popen` would. The server runs no torch operation, and no thread but its
main one works (OpenBLAS ends its own at a fork), so nothing that a fork would break exists yet. It
ends with the sweep's process, however that ends, and Linux then asks the jobs to stop. A request to
stop is the sweep's to pass on: the server leads a session of its own and blocks such signals.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from pods.machine import end_with_parent, python_path, set_threads
from pods.stop import SIGNALS
from pods.trouble import AGAIN

READY = b"ready"
FORK = b"fork"


class Forked:
    """A process that the server has forked; `returncode` is as in `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(self, status: int) -> None:
        """Wait for the pid.

        Args:
            status: the pipe on which the server writes the pid and, at the end, the exit code.

        Raises:
            ChildProcessError: there is none.
        """
        self._status = open(status, "rb")  # noqa: SIM115  (until the process has ended)
        pid = self._status.readline()
        if not pid:
            self._status.close()
            raise ChildProcessError("the fork server died, or there was no room for a process")
        self.pid = int(pid)

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Wait for the end; return the exit code, AGAIN if the server died: the job then stops."""
        if self.returncode is None:
            code = self._status.read()
            self._status.close()
            self.returncode = int(code) if code else AGAIN
        return self.returncode

    def terminate(self) -> None:
        """Ask the process to stop."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


class ForkServer:
    """The server as the sweep's process sees it: loading, then ready, or dead."""

    def __init__(self, threads: int, modules: Sequence[str]) -> None:
        """Start it.

        Args:
            threads: of torch, which reads them once, when it loads.
            modules: what to import before the first fork.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = self._launch([str(threads), *modules], theirs.fileno())
        self._ready = False

    def _launch(self, words: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": words[0]}
        return subprocess.Popen(
            [sys.executable, "-m", "pods.launch.fork_server", *words],
            stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Let the server end; jobs that still run are asked to stop."""
        if not self._ready:
            self._process.kill()  # it would import to the end first
        self._control.close()
        self._process.wait()

    def is_loading(self) -> bool:
        """Say whether its libraries are still being imported."""
        if not self._ready and select.select([self._control], [], [], 0)[0]:
            with suppress(OSError):
                self._ready = self._control.recv(len(READY)) == READY
        return not self._ready and self._process.poll() is None

    def is_alive(self) -> bool:
        """Say whether it can fork a job now."""
        return self._ready and self._process.poll() is None

    def spawn(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        stdout: int,
        stderr: int,
    ) -> Forked:
        """Run `python -m WORDS...` in a process of its own that leads a session.

        Args:
            words: the module and its arguments.
            environment: all of it; threads and the module search path are the server's.
            cwd: working folder of the process; None: this process's.
            stdout: an open file, which stays open here.
            stderr: likewise.

        Raises:
            OSError: the server has died, or this machine has no room for another process.
        """
        wanted = {"words": list(words), "environment": dict(environment),
                  "cwd": str(cwd or Path.cwd())}  # fmt: skip
        read, write = os.pipe()
        # in a file of memory: an environment may be larger than a message
        with open(os.memfd_create("request"), "w") as request, open(write, "wb"):
            json.dump(wanted, request)
            request.flush()
            try:
                socket.send_fds(self._control, [FORK], [request.fileno(), write, stdout, stderr])
            except OSError:
                os.close(read)
                raise
        return Forked(read)


def serve(control: socket.socket) -> list[str]:
    """Fork a process for each request; return in it, with its words, and never in the server."""
    # blocked, not ignored: a job finds each signal as the sweep had it, and misses none
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # else it wakes nobody
    statuses: dict[int, int] = {}
    control.send(READY)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _report_ended(statuses)
        if control in ready:
            asked, files, _, _ = socket.recv_fds(control, len(FORK), 4)
            if not asked:  # the sweep's process is gone
                os._exit(0)
            request, status, *consoles = files
            server, pid = os.getpid(), _fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for unused in (status, woken.detach(), wake.detach(), *statuses.values()):
                    os.close(unused)
                control.detach()
                words = _become(request, consoles, server)
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
                return words
            for file in (request, *consoles):
                os.close(file)
            if pid is None:
                os.close(status)
            else:
                statuses[pid] = status
                _write(status, f"{pid}\n")


def _fork() -> int | None:
    """Fork, if there is room for a process."""
    try:
        return os.fork()
    except OSError:
        return None


def _report_ended(statuses: dict[int, int]) -> None:
    """Tell of each process that has ended how it did."""
    while statuses:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = statuses.pop(pid)
        _write(status, str(os.waitstatus_to_exitcode(how)))
        os.close(status)


def _write(pipe: int, text: str) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(pipe, text.encode())


def _become(request: int, consoles: Sequence[int], server: int) -> list[str]:
    """Make a forked process what a fresh one would be; return its words."""
    import numpy as np

    with open(request) as file_of_request:
        file_of_request.seek(0)
        wanted = json.load(file_of_request)

    os.setsid()
    end_with_parent(signal.SIGTERM)
    if os.getppid() != server:
        os._exit(AGAIN)
    files = [os.open(os.devnull, os.O_RDONLY), *consoles]
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    np.random.seed()  # else all jobs had the server's state
    sys.argv = list(wanted["words"])
    return sys.argv


def main(threads: str, *modules: str) -> None:
    """Import, and serve whoever holds the other end of stdin."""
    control = socket.socket(fileno=0)
    set_threads(int(threads))
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # a job's first collection then leaves the pages that it shares with the server
    runpy.run_module(serve(control)[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
