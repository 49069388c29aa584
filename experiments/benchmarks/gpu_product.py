"""The product on a card: the machine's check, a sweep that is killed and resumed, its tables."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_config import Skipped

from pods.system.machine import python_path

ROOT = Path(__file__).parents[2]
STUDY = "gpu"
BUDGET = 12  # steps of a run: the sweep is killed in the middle of them
PODS = [sys.executable, "-m", "pods.cli.main"]


def product(options: Namespace, deadline: float) -> Iterator[dict[str, Any]]:
    """Check the machine, sweep two arms x two seeds, kill, resume, compare, draw."""
    if find_spec("hydra") is None:
        raise Skipped("Hydra is not installed (GPU.md says how to bring it)")
    folder = options.scratch / "product"
    folder.mkdir()
    log = options.scratch / "logs" / "product-commands.log"
    hardware = "cpu" if options.device == "cpu" else "h200"
    sweep = [sys.executable, str(ROOT / "src" / "run.py"), "-m", f"study={STUDY}",
             f"hardware={hardware}", "arm=grpo,pods", "seed=0,1", "budget.train_seconds=1e9",
             f"budget.max_steps={BUDGET}", "checkpoint.every_steps=4", "evaluation.repeats=1",
             "evaluation.questions=32", "tracking=none"]  # fmt: skip
    results: dict[str, Any] = {"doctor": call([*PODS, "doctor", f"hardware={hardware}"], folder,
                                              log, deadline)}  # fmt: skip
    yield results
    results["killed"] = killed(sweep, folder, log, deadline)
    yield results
    verbs = {
        "resumed": sweep,
        "status": [*PODS, "status", STUDY],
        "compare": [*PODS, "compare", "pods", "grpo", "--study", STUDY],
        "figure": [*PODS, "plot", STUDY],
    }
    for name, command in verbs.items():
        results[name] = call(command, folder, log, deadline)
        yield results
    states = [json.loads(path.read_text())["state"] for path in _states(folder)]
    results["states"] = states
    yield results
    failed = [name for name in ("resumed", "status", "compare", "figure") if results[name]["code"]]
    if failed or states != ["done"] * 4:
        raise AssertionError(f"failed: {', '.join(failed) or states}")


def _states(folder: Path) -> list[Path]:
    return sorted((folder / "runs" / STUDY).rglob("status.json"))


def call(command: list[str], folder: Path, log: Path, deadline: float) -> dict[str, Any]:
    """Run a command to its end; return its exit code, seconds and last lines."""
    start = time.monotonic()
    with _begun(command, folder, log) as process:
        try:
            code = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    lines = log.read_text(errors="replace").splitlines()
    return {"code": code, "seconds": round(time.monotonic() - start, 1), "end": lines[-12:]}


def killed(command: list[str], folder: Path, log: Path, deadline: float) -> dict[str, Any]:
    """Start a sweep, and end it with all its jobs by SIGKILL once a run has taken steps."""
    with _begun(command, folder, log) as process:
        while process.poll() is None and time.monotonic() < deadline and not _lines(folder):
            time.sleep(0.05)
        ended = process.poll()
        running = [json.loads(path.read_text()) for path in _states(folder)]
        pids = [status["pid"] for status in running if status["state"] == "running"]
        for pid in (process.pid, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return {"ended_before": ended, "runs_killed": len(pids), "steps_before": _lines(folder)}


def _lines(folder: Path) -> int:
    """Count the steps that all runs have recorded."""
    metrics = (folder / "runs" / STUDY).rglob("metrics.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in metrics)


def _begun(command: list[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as console:
        console.write(f"\n$ {' '.join(command)}\n".encode())
        console.flush()
        return subprocess.Popen(
            command, cwd=folder, stdout=console, stderr=console,
            env={**os.environ, "PYTHONPATH": python_path()},
        )  # fmt: skip
