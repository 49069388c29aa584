"""A server that has imported the libraries of a job and forks each job: it starts in 1 s, not 6 s.

    python -m pods.launch.fork_server THREADS MODULE...     the server; its stdin is a socket

A sweep's process holds a `ForkServer` and gets a `ForkedProcess` for each job, which behaves like
`subprocess.Popen`. Forking is safe because the server runs no torch operation and only its main
thread works (OpenBLAS stops its own threads at a fork). The server ends with the sweep's process,
however that ends, and Linux then asks the jobs to stop. The server ignores requests to stop: it
leads a session of its own and blocks their signals, because the sweep's process passes them on.
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

from pods.system.errors import AGAIN
from pods.system.machine import end_with_parent, python_path, set_threads
from pods.system.signals import SIGNALS

READY = b"ready"
FORK = b"fork"
POLL_SECONDS = 0.05  # between looks at whether a forked process has ended


class ForkedProcess:
    """A process that the server has forked, with the methods of `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(self, status: int) -> None:
        """Wait until the process has started.

        Args:
            status: pipe to which the server writes the process id and, at the end, the exit code.

        Raises:
            ChildProcessError: it has not started.
        """
        self._status = open(status, "rb")  # noqa: SIM115  (until the process has ended)
        pid = self._status.readline()
        if not pid:
            self._status.close()
            raise ChildProcessError("the fork server died, or the machine has no free process")
        self.pid = int(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Wait for the end and return the exit code; 75 if the server died, since the job stops."""
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
    """The server as the sweep's process sees it."""

    def __init__(self, threads: int, modules: Sequence[str]) -> None:
        """Start the server.

        Args:
            threads: number of threads for torch, which reads it once, when it loads.
            modules: to import before the first fork.
        """
        self._control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            self._process = self._launch([str(threads), *modules], server_end.fileno())
        self._ready = False

    def _launch(self, arguments: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": arguments[0]}
        return subprocess.Popen(
            [sys.executable, "-m", "pods.launch.fork_server", *arguments],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        """Return the server, which ends with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the server, which asks the jobs that still run to stop."""
        if not self._ready:
            self._process.kill()  # it would finish its imports first
        self._control.close()
        self._process.wait()

    def is_loading(self) -> bool:
        """Return whether the server is still importing."""
        if not self._ready and select.select([self._control], [], [], 0)[0]:
            with suppress(OSError):
                self._ready = self._control.recv(len(READY)) == READY
        return not self._ready and self._process.poll() is None

    def is_alive(self) -> bool:
        """Return whether the server can fork a job now."""
        return self._ready and self._process.poll() is None

    def spawn(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        stdout: int,
        stderr: int,
    ) -> ForkedProcess:
        """Run `python -m ARGUMENTS...` in a process that leads a session of its own.

        Args:
            arguments: the module and its arguments.
            environment: all variables; threads and module search path remain those of the server.
            cwd: working folder; None: that of this process.
            stdout: number of an open file, which stays open here.
            stderr: likewise.

        Raises:
            OSError: the server has died, or this machine has no free process.
        """
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "cwd": str(cwd or Path.cwd()),
        }
        read, write = os.pipe()
        # the request is a file in memory, because an environment may be larger than a message
        with open(os.memfd_create("request"), "w") as file, open(write, "wb"):
            json.dump(request, file)
            file.flush()
            try:
                socket.send_fds(self._control, [FORK], [file.fileno(), write, stdout, stderr])
            except OSError:
                os.close(read)
                raise
        return ForkedProcess(read)


def serve(control: socket.socket) -> list[str]:
    """Fork a process per request; return only in the forked process, with its arguments."""
    # blocked, not ignored: a job finds each signal's handling as the sweep had it
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    statuses: dict[int, int] = {}
    control.send(READY)
    while True:
        _report_ended(statuses)
        if select.select([control], [], [], POLL_SECONDS if statuses else None)[0]:
            message, files, _, _ = socket.recv_fds(control, len(FORK), 4)
            if not message:  # the sweep's process has ended
                os._exit(0)
            request, status, *consoles = files
            server, pid = os.getpid(), _fork()
            if pid == 0:
                for unused in (status, *statuses.values()):
                    os.close(unused)
                control.detach()
                arguments = _become_job(request, consoles, server)
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
                return arguments
            for file in (request, *consoles):
                os.close(file)
            if pid is None:
                os.close(status)
            else:
                statuses[pid] = status
                _write(status, f"{pid}\n")


def _fork() -> int | None:
    """Fork, or return None if the machine has no free process."""
    try:
        return os.fork()
    except OSError:
        return None


def _report_ended(statuses: dict[int, int]) -> None:
    """Write the exit code of each process that has ended to its pipe."""
    while statuses:
        pid, wait_status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = statuses.pop(pid)
        _write(status, str(os.waitstatus_to_exitcode(wait_status)))
        os.close(status)


def _write(pipe: int, text: str) -> None:
    with suppress(BrokenPipeError):  # nobody waits for the process any more
        os.write(pipe, text.encode())


def _become_job(request_file: int, consoles: Sequence[int], server: int) -> list[str]:
    """Give a forked process the state of a new one, and return its arguments."""
    import numpy as np

    with open(request_file) as file:
        file.seek(0)
        request = json.load(file)

    os.setsid()
    end_with_parent(signal.SIGTERM)
    if os.getppid() != server:
        os._exit(AGAIN)
    files = [os.open(os.devnull, os.O_RDONLY), *consoles]
    for target, number in enumerate(files):
        os.dup2(number, target)
        os.close(number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    np.random.seed()  # otherwise all jobs would inherit the server's state
    sys.argv = list(request["arguments"])
    return sys.argv


def main(threads: str, *modules: str) -> None:
    """Import the modules and serve the process at the other end of stdin."""
    control = socket.socket(fileno=0)
    set_threads(int(threads))
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # a job's collections then leave the memory alone that it shares with the server
    runpy.run_module(serve(control)[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
