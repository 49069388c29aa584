"""A run's attempts: one process each, what it ran on and what had changed by then."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods.runs.files import replace
from pods.runs.reading import Damaged, Kinds, read_json, read_object
from pods.runs.store import RunStore

ENVIRONMENT: Mapping[str, Kinds] = {
    "cpu": (str, type(None)), "gpus": (list,), "packages": (dict,), "commit": (str, type(None)),
}  # fmt: skip
"""Of what `environment()` tells, the types of what is gone by later."""


def mark(store: RunStore, changes: Iterable[str]) -> None:
    """Note for good what changed while the run was going on, or was evaluated again."""
    before = marks(store)
    new = [change for change in changes if change not in before]
    if new:
        replace(store.folder / "changes.json", json.dumps([*before, *new], indent=1), durable=True)


def marks(store: RunStore) -> list[str]:
    """What changed meanwhile, such as a version or machine; runs without any are of one piece."""
    path = store.folder / "changes.json"
    try:
        found = read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(found, list) or not all(isinstance(change, str) for change in found):
        raise Damaged(path, "it is no list of texts")
    return found


def environments(store: RunStore) -> list[dict[str, Any]]:
    """Machine and versions of every attempt that began, in order."""
    return list(_read_all(store, "environment.json", ENVIRONMENT))


def wall_seconds(store: RunStore) -> float:
    """Seconds that all attempts took, start, checkpoints and evaluation included."""
    return float(sum(phase["seconds"] for _, phase in _phases(store)))


def peak_bytes(store: RunStore) -> dict[str, int]:
    """Largest memory of each phase over all attempts."""
    found: dict[str, int] = {}
    for name, phase in _phases(store):
        found[name] = max(found.get(name, 0), phase.get("peak_bytes", 0))
    return found


def _phases(store: RunStore) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every phase of every attempt by its name; what is damaged is left out."""
    for phases in _read_all(store, "phases.json", {}):
        for name, phase in phases.items():
            if (isinstance(phase, dict) and type(phase.get("seconds")) in (int, float)
                    and type(phase.get("peak_bytes", 0)) is int):  # fmt: skip
                yield name, phase


def new_attempt(store: RunStore, kind: str = "attempts") -> Path:
    """Make and return the folder of this attempt's console and environment.

    Args:
        store: of the run.
        kind: `reevaluations` are no attempts at the run: their time and machine are not its own.
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
    """Note the cluster's job that the run was last given to; a file that only its client writes."""
    replace(store.folder / "queued.json", json.dumps({"job": job}), durable=True)


def queued(store: RunStore) -> str | None:
    """The cluster's job that the run was last given to, which may have ended since."""
    try:
        return str(read_object(store.folder / "queued.json", {"job": (str,)})["job"])
    except (FileNotFoundError, ValueError):  # a power cut can leave it empty
        return None


def _read_all(store: RunStore, name: str, types: Mapping[str, Kinds]) -> Iterator[dict[str, Any]]:
    """That file of every attempt in order; those that are damaged, as by a power cut, left out."""
    for path in sorted((store.folder / "attempts").glob(f"*/{name}")):
        with suppress(ValueError, FileNotFoundError):
            yield read_object(path, {}, types)
