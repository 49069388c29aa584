"""Start short runs for tests, and compare their results."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from compose import ROOT, composed

from pods.launch import job
from pods.launch.fork_server import ForkedProcess, ForkServer
from pods.launch.local_backend import PRELOADED, PRELOADED_FOR_TRACKING
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.runs.store import RunStore

SHORT = ("budget.max_steps=4", "checkpoint.every_steps=2", "evaluation.questions=16",
         "evaluation.repeats=2", "rollouts_every_steps=2", "tracking=none")  # fmt: skip


def run_folder(tmp_path: Path) -> Path:
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    return folder


def science_of(folder: Path) -> tuple[list, dict[str, bytes]]:
    """Return what equal runs must share: metrics without seconds, and the bytes of other files."""
    lines = [
        {k: v for k, v in line.items() if "seconds" not in k}
        for line in read_lines(folder / "metrics.jsonl")
    ]
    names = ["evaluations/*.jsonl", "rollouts/*", "checkpoints/*/policy/*",
             "checkpoints/*/*.safetensors", "checkpoints/*/selection.json"]  # fmt: skip
    files = sorted(path for name in names for path in folder.glob(name))
    return lines, {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run_here(*overrides: str) -> RunStore:
    """Execute a run in this process, which has already imported torch."""
    store = freeze(composed(*overrides))
    assert job.execute(store.folder) == job.DONE
    return store


RUN_PY = str(ROOT / "src" / "run.py")
# all modules that `run.py` may import, until the figure is drawn
IMPORTED = (
    *PRELOADED, *PRELOADED_FOR_TRACKING, "hydra", "pods.launch.sweep", "pods.launch.dry_run",
    "pods.analysis.plots",
)  # fmt: skip


@functools.cache
def server() -> ForkServer:
    """Return the server that forks the processes of the tests; it ends with this process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    try:
        fork_server = ForkServer(1, IMPORTED)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    wait_for(lambda: not fork_server.is_loading(), 120)
    assert fork_server.is_alive()
    return fork_server


class Started:
    """A forked `run.py`, with the methods of `Popen`."""

    def __init__(self, process: ForkedProcess, consoles: list[IO[str]]) -> None:
        self._process, self._consoles = process, consoles
        self.pid = process.pid
        self.poll, self.terminate = process.poll, process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def wait(self, timeout: float = 900) -> int:
        wait_for(lambda: self.poll() is not None, timeout)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 900) -> tuple[str, str]:
        """Wait for the end; return stdout and stderr, which is empty if both were merged."""
        self.wait(timeout)
        for console in self._consoles:
            console.seek(0)
        stdout, *stderr = [console.read() for console in self._consoles]
        return stdout, "".join(stderr)


def start(
    folder: Path, *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    """Start `python src/run.py ARGUMENTS` in a folder, in a new Python."""
    return subprocess.Popen(
        [sys.executable, RUN_PY, *arguments], cwd=folder, stdout=stdout, stderr=stderr, text=True
    )


def start_forked(folder: Path, *arguments: str, apart: bool = False) -> Started:
    """Fork `run.py ARGUMENTS` from a server that has imported its libraries, which is faster."""
    consoles = [tempfile.TemporaryFile("w+") for _ in range(1 + apart)]  # noqa: SIM115
    words = ["as_typed", "3", RUN_PY, *arguments]
    stdout, stderr = consoles[0].fileno(), consoles[-1].fileno()
    return Started(server().spawn(words, os.environ, folder, stdout, stderr), consoles)


WATCHED = """
import atexit, sys
atexit.register(lambda: open({path!r}, "w").write(" ".join(sys.modules)))
"""


def note_imports(tmp_path: Path, monkeypatch) -> Path:
    """Let new Pythons write the names of the modules that they import into a file."""
    path = tmp_path / "imported"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCHED.format(path=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return path


def wait_for(condition, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)
