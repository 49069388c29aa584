"""Start short runs for tests, and compare their results."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import as_typed
from compose import ROOT, composed
from safetensors.torch import load_file

from pods.launch import fork_server, job
from pods.launch.fork_server import ForkedProcess
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.system.errors import DONE

SHORT = ("budget.max_steps=4", "checkpoint.every_steps=2", "evaluation.questions=16",
         "evaluation.repeats=2", "rollouts_every_steps=2", "tracking=none")  # fmt: skip
ONE_STEP = ("budget.train_seconds=null", "budget.max_steps=1", "nm.n=4", "nm.m=2", "tracking=none",
            "evaluation.questions=8", "evaluation.repeats=2")  # fmt: skip


def run_folder(workdir: Path, seed: int | str = "*") -> Path:
    """Return the folder of the only run in a working folder, or of the only one of a seed."""
    [folder] = (workdir / "runs").glob(f"*/*/*/seed{seed}-*")
    return folder


def steps_made(workdir: Path) -> int:
    """Count the steps that the runs in a working folder have logged."""
    return sum(len(read_lines(path)) for path in workdir.glob("runs/*/*/*/seed*/metrics.jsonl"))


def busy(workdir: Path) -> int:
    """Count the runs in a working folder that have made some steps."""
    logs = workdir.glob("runs/*/*/*/seed*/metrics.jsonl")
    return sum(log.stat().st_size > 3000 for log in logs)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its place in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


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


def run_here(*overrides: str, **settings: Any) -> RunStore:
    """Execute a run in this process, which has already imported torch."""
    store = freeze(composed(*overrides))
    assert job.execute(store.folder, **settings) == DONE, overrides
    return store


RUN_PY = str(ROOT / "src" / "run.py")
# all modules that `run.py` may import, until the figure is drawn
IMPORTED = (fork_server.TRACKER, "pods.analysis.figures.style", *fork_server.LIBRARIES)


@functools.cache
def prepared() -> None:
    """Let the server that forks the processes of the tests import all that they need."""
    fork_server.start_server(IMPORTED, threads=1)


def forked(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, *outputs: int
) -> ForkedProcess:
    """Fork a Python that executes a script; its output goes to one or two open files."""
    prepared()
    paths = [Path(f"/proc/{os.getpid()}/fd/{number}") for number in outputs]
    settings = {"folder": folder, "environment": dict(environment), "stderr": paths[-1]}
    main = functools.partial(as_typed.main, **settings)
    return fork_server.fork(main, words, os.environ, paths[0])


class Started:
    """A forked `run.py`, with the methods of `Popen`."""

    def __init__(self, process: ForkedProcess, consoles: list[IO[str]]) -> None:
        self._process, self._consoles = process, consoles
        self.pid = process.pid
        self.poll, self.terminate = process.poll, process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float = 900) -> int:
        wait_for(lambda: self.poll() is not None, timeout)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

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
    command = [sys.executable, RUN_PY, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=stderr, text=True)


def start_forked(folder: Path, *arguments: str, apart: bool = False) -> Started:
    """Fork `run.py ARGUMENTS` from a server that has imported its libraries, which is faster."""
    consoles = [tempfile.TemporaryFile("w+") for _ in range(1 + apart)]  # noqa: SIM115
    numbers = [console.fileno() for console in consoles]
    return Started(forked([RUN_PY, *arguments], os.environ, folder, *numbers), consoles)


WATCHED = """
import atexit, sys
atexit.register(lambda: open({path!r}, "w").write(" ".join(sys.modules)))
"""


def note_imports(tmp_path: Path, monkeypatch) -> Path:
    """Let new Pythons write the names of the modules that they import into a file."""
    path = tmp_path / "imported"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCHED.format(path=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    return path


def wait_for(condition, seconds: float = 400.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)


def killing(*arguments: object) -> dict:
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("killing.py"), *map(str, arguments)],
        capture_output=True, text=True, check=False)  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


BY_HAND = ("-m", "torch.distributed.run", "--standalone")
STEPS = ("budget.train_seconds=null", "budget.max_steps=5", "update.micro_batch_tokens=300",
         "nm.n=16", "nm.m=8")  # fmt: skip


def steps(folder: Path, processes: int, *words: str) -> tuple[list[dict], dict]:
    """What every step was made of, and the gradients of every update."""
    folder.mkdir()
    several = str(Path(__file__).with_name("several.py"))
    script = [several, str(folder), *STEPS, *words, f"hardware.processes={processes}"]
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    environments = [own]
    if processes > 1:
        size = {"WORLD_SIZE": str(processes), "TORCHELASTIC_RUN_ID": "tests"}
        environments = [own | size | {"RANK": str(rank)} for rank in range(processes)]
    started = [
        subprocess.Popen([sys.executable, *script], env=each, stderr=subprocess.PIPE, text=True)
        for each in environments
    ]
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    made = json.loads((folder / "steps.json").read_text())
    return made, load_file(folder / "gradients.safetensors")
