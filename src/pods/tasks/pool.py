"""Workers that may be killed: each a process of `symbolic`, and a thread here that asks it."""

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

START_SECONDS = 120.0  # a worker loads sympy, perhaps from a network file system
ANSWER_SECONDS = 15.0  # it kills its own children after 2.5, if need be once more after 10
PACKAGE = Path(__file__).parents[2]
SERVE = f"""
import sys
sys.path.append({str(PACKAGE)!r})  # last: nothing there shall hide the standard library
from pods.tasks.symbolic import serve
serve()"""


class Silent(Exception):
    """A worker has died, or does not answer."""


class NoRoom(MemoryError):
    """The machine has no room for a worker: no fault of the answer that was to be graded."""


class Worker:
    """One process, started when it is first asked, and anew after it has died."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self.process: subprocess.Popen[bytes] | None = None
        self.asked = 0

    def ask(self, goal: list[object]) -> str:
        """Ask whether a goal holds: `right`, `wrong` or `timeout`; a second worker is tried once.

        Raises:
            NoRoom: no worker can be started, or two have died: that is the machine's doing,
                and no verdict.
        """
        for _ in range(2):
            try:
                process = self.process or self._start()
                return self._answer(process, goal)
            except (Silent, OSError):
                self.end()
        raise NoRoom("grading: two workers in a row died or fell silent; is there memory "
                           "for them, and room for processes?")  # fmt: skip

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
        """Start a process, and wait until it has loaded; twice, should the first be killed."""
        for _ in range(2):
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", SERVE],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                env=_environment(), start_new_session=True,
            )  # fmt: skip
            with suppress(Silent):
                if _line(self.process, START_SECONDS) == "ready":
                    return self.process
            self.end()
        raise NoRoom("grading: no worker starts; its error, if it could say one, is above")

    def _answer(self, process: subprocess.Popen[bytes], goal: list[object]) -> str:
        assert process.stdin is not None
        self.asked += 1
        process.stdin.write(f"{json.dumps([self.asked, goal])}\n".encode())
        number, _, verdict = _line(process, ANSWER_SECONDS).partition(" ")
        if number != str(self.asked) or verdict == "failed":
            raise Silent  # out of step, never to be believed again; or it had no means
        return verdict


class Pool:
    """Threads with a worker each; nothing is started before the first question."""

    def __init__(self, workers: int) -> None:
        """Have so many workers, later."""
        self.workers = workers
        self.questions: queue.SimpleQueue[tuple[list[object], Future[str]] | None] = (
            queue.SimpleQueue()
        )
        self.threads: list[threading.Thread] = []

    def submit(self, goal: list[object]) -> "Future[str]":
        """Ask in the background."""
        if not self.threads:
            # daemons: what is still to be asked when the program ends is nobody's
            self.threads = [
                threading.Thread(target=self._serve, name=f"grading-{i}", daemon=True)
                for i in range(self.workers)
            ]
            for thread in self.threads:
                thread.start()
        future: Future[str] = Future()
        self.questions.put((goal, future))
        return future

    def close(self) -> None:
        """Let the workers finish what they do, and end them; what waits is cancelled."""
        with suppress(queue.Empty):
            while (waiting := self.questions.get_nowait()) is not None:
                waiting[1].cancel()
        for _ in self.threads:
            self.questions.put(None)
        for thread in self.threads:
            thread.join()
        self.threads = []

    def _serve(self) -> None:
        worker = Worker()
        try:
            while (question := self.questions.get()) is not None:
                goal, future = question
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(worker.ask(goal))
                except Exception as problem:
                    future.set_exception(problem)
        finally:
            worker.end()


def _environment() -> dict[str, str]:
    """Nothing that makes sympy work otherwise, and no randomness in hashes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYMPY_")}
    return {**kept, "PYTHONHASHSEED": "0"}


def _line(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Read one line.

    Raises:
        Silent: it does not come in time, or the process has ended.
    """
    assert process.stdout is not None
    poll, found = select.poll(), b""
    poll.register(process.stdout, select.POLLIN)
    while not found.endswith(b"\n"):
        if not poll.poll(seconds * 1000):
            raise Silent
        part = os.read(process.stdout.fileno(), 64)
        if not part:
            raise Silent
        found += part
    return found.decode().rstrip("\n")
