"""Runs for tests: a short one, its process or none, and what of it must repeat."""

import subprocess
import sys
import time
from pathlib import Path

from compose import ROOT, composed

from pods import job
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


def start(
    tmp_path: Path, *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "src" / "run.py"), *arguments],
        cwd=tmp_path, stdout=stdout, stderr=stderr, text=True,
    )  # fmt: skip


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
