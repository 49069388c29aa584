"""Worker processes that may be killed: each runs `symbolic_worker.py`, and a thread asks it."""

import json
import os
import queue
import select
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

Goal = list[object]
"""A claim for a worker to prove, as JSON; see `latex/goals.py`."""
START_SECONDS = 120.0  # a worker loads sympy, perhaps from a network file system
ANSWER_SECONDS = 15.0  # it kills its own children after 2.5, and a second one after 10
SEARCH_PATH = Path(__file__).parents[1]
WORKER_SCRIPT = f"""
import sys
sys.path.append({str(SEARCH_PATH)!r})  # last, so that it cannot hide the standard library
from mathgrade.symbolic_worker import serve
serve()"""


class WorkerFailed(Exception):
    """A worker has died, or does not answer."""


class WorkerUnavailable(MemoryError):
    """The machine cannot run a worker; the answer that was to be graded is not at fault."""


class GradingWorker:
    """One process, started when it is first asked, and again after it has died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.questions = 0

    def ask(self, goal: Goal) -> str:
        """Return `right`, `wrong` or `timeout` for a goal; a process that fails is replaced once.

        Raises:
            WorkerUnavailable: two processes failed in a row. That is the machine's fault, and not a
                verdict.
        """
        for _ in range(2):
            try:
                return self._answer(self.process or self._start(), goal)
            except (WorkerFailed, OSError):
                self.end()
        raise WorkerUnavailable(
            "grading: two worker processes in a row did not start, crashed or timed out; "
            "check free memory and the process limit"
        )

    def end(self) -> None:
        """Kill the process."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a process, and wait until it has loaded its libraries."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
            start_new_session=True,
        )
        if _read_line(self.process, START_SECONDS) != "ready":
            raise WorkerFailed
        return self.process

    def _answer(self, process: subprocess.Popen[bytes], goal: Goal) -> str:
        assert process.stdin is not None
        self.questions += 1
        process.stdin.write(f"{json.dumps([self.questions, goal])}\n".encode())
        number, _, verdict = _read_line(process, ANSWER_SECONDS).partition(" ")
        if number != str(self.questions) or verdict == "failed":
            raise WorkerFailed  # it is out of step and cannot be trusted, or it could not fork
        return verdict


class WorkerPool:
    """Threads with one worker each; nothing starts before the first goal."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.goals: queue.SimpleQueue[tuple[Goal, Future[str]] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []

    def submit(self, goal: Goal) -> "Future[str]":
        """Prove a goal in the background."""
        if not self.threads:
            # daemons: a program that ends does not wait for goals that are still queued
            self.threads = [
                threading.Thread(target=self._serve, daemon=True) for _ in range(self.workers)
            ]
            for thread in self.threads:
                thread.start()
        future: Future[str] = Future()
        self.goals.put((goal, future))
        return future

    def close(self) -> None:
        """Let the workers finish their current goals, end them, and cancel the queued goals."""
        with suppress(queue.Empty):
            while (queued := self.goals.get_nowait()) is not None:
                queued[1].cancel()
        for _ in self.threads:
            self.goals.put(None)
        for thread in self.threads:
            thread.join()
        self.threads = []

    def _serve(self) -> None:
        worker = GradingWorker()
        try:
            while (queued := self.goals.get()) is not None:
                goal, future = queued
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(worker.ask(goal))
                except Exception as error:
                    future.set_exception(error)
        finally:
            worker.end()


def _environment() -> dict[str, str]:
    """Return the environment without settings of sympy, and without randomness in hashes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYMPY_")}
    return {**kept, "PYTHONHASHSEED": "0"}


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Read one line.

    Raises:
        WorkerFailed: it does not come in time, or the process has ended.
    """
    assert process.stdout is not None
    poll, line = select.poll(), b""
    poll.register(process.stdout, select.POLLIN)
    while not line.endswith(b"\n"):
        if not poll.poll(seconds * 1000):
            raise WorkerFailed
        part = os.read(process.stdout.fileno(), 64)
        if not part:
            raise WorkerFailed
        line += part
    return line.decode().rstrip("\n")
