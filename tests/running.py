"""Runs for tests: a short one, its process or none, and what of it must repeat."""

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

from pods import job
from pods.launch.fork_server import Forked, ForkServer
from pods.launch.local import FORKED_WITH, TRACKED_WITH
from pods.runs.files import read_lines
from pods.runs.frozen import freeze
from pods.runs.store import RunStore

SHORT = ("budget.max_steps=4", "checkpoint.every_steps=2", "evaluation.questions=16",
         "evaluation.repeats=2", "rollouts_every_steps=2", "tracking=none")  # fmt: skip


def run_folder(tmp_path: Path) -> Path:
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    return folder


def science_of(folder: Path) -> tuple[list, dict[str, bytes]]:
    """What must be equal in equal runs: metrics without seconds, and the bytes of the rest."""
    lines = [
        {k: v for k, v in line.items() if "seconds" not in k}
        for line in read_lines(folder / "metrics.jsonl")
    ]
    names = ["evaluations/*", "rollouts/*", "checkpoints/*/policy/*", "checkpoints/*/*.safetensors",
             "checkpoints/*/selection.json"]  # fmt: skip
    files = sorted(path for name in names for path in folder.glob(name))
    return lines, {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run_here(*overrides: str) -> RunStore:
    """A run to its end in this process, which has imported torch already."""
    store = freeze(composed(*overrides))
    assert job.execute(store.folder) == job.DONE
    return store


RUN_PY = str(ROOT / "src" / "run.py")
# all that `run.py` may import, to the figure
IMPORTED = (
    *FORKED_WITH, *TRACKED_WITH, "hydra", "pods.sweep", "pods.dry_run", "pods.analysis.plots",
)  # fmt: skip


@functools.cache
def server() -> ForkServer:
    """Forks what these tests start; it ends with their process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    try:
        found = ForkServer(1, IMPORTED)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    wait_for(lambda: not found.is_loading(), 120)
    assert found.is_alive()
    return found


class Started:
    """A `run.py` that was forked, as `Popen` would show it."""

    def __init__(self, process: Forked, consoles: list[IO[str]]) -> None:
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
        """Wait for the end; return stdout and, where it is apart, stderr."""
        self.wait(timeout)
        for console in self._consoles:
            console.seek(0)
        stdout, *stderr = [console.read() for console in self._consoles]
        return stdout, "".join(stderr)


def start(
    folder: Path, *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    """`python src/run.py ARGUMENTS` in a folder, by a fresh Python."""
    return subprocess.Popen(
        [sys.executable, RUN_PY, *arguments], cwd=folder, stdout=stdout, stderr=stderr, text=True
    )


def start_forked(folder: Path, *arguments: str, apart: bool = False) -> Started:
    """The same where a fork hides nothing: with its libraries imported; stderr may be apart."""
    consoles = [tempfile.TemporaryFile("w+") for _ in range(1 + apart)]  # noqa: SIM115
    words = ["as_typed", "3", RUN_PY, *arguments]
    stdout, stderr = consoles[0].fileno(), consoles[-1].fileno()
    return Started(server().spawn(words, os.environ, folder, stdout, stderr), consoles)


WATCHED = """
import atexit, sys
atexit.register(lambda: open({path!r}, "w").write(" ".join(sys.modules)))
"""


def note_imports(tmp_path: Path, monkeypatch) -> Path:
    """Have fresh Pythons write the names of all that they have imported into a file."""
    path = tmp_path / "imported"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCHED.format(path=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return path


def wait_for(condition, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
