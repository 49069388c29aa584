"""Read a run's history: its checkpoints, the one to resume from, and those to discard."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import read_or_empty
from pods.runs.records import Clock
from pods.runs.store import DAMAGED_SUFFIX, RunStore

STEP = f"step-{'[0-9]' * 6}"
ABANDONED = (  # what lies in a folder before that folder
    *("*.tmp[0-9]*", "tensorboard.trash", "wandb.trash", "rollouts/*.tmp[0-9]*"),
    *("checkpoints/*/*.tmp[0-9]*", "checkpoints/*.trash", "checkpoints/*.tmp"),
    *("evaluations/*.tmp", "evaluations/*.tmp[0-9]*"),
)


def newest_checkpoint(store: RunStore, needs: str) -> tuple[Path | None, dict[Path, str]]:
    """Return the newest checkpoint to resume from, and the damaged ones with their faults.

    One that an interrupted commit had renamed is put back first. The checkpoint must have the file
    that is named by `needs`, which older ones have lost.

    Raises:
        OSError: the log cannot be read, which says nothing about any checkpoint.
    """
    checkpoint.recover(store.checkpoints)
    faults = {}
    for folder in sorted(store.checkpoints.glob(STEP), reverse=True):
        fault = checkpoint_fault(store, folder)
        if fault:
            faults[folder] = fault
        elif needs in checkpoint.manifest_files(folder):
            return folder, faults
    return None, faults


def checkpoint_fault(store: RunStore, folder: Path, max_bytes: float = float("inf")) -> str | None:
    """Say why a checkpoint cannot be used for this run; None if it can. See `damage`."""
    fault = checkpoint.damage(folder, max_bytes=max_bytes)
    if fault is not None:
        return fault
    try:
        clock = store.clock(folder)
    except ValueError as error:
        return str(error)
    if (clock["run"], clock["step"]) != (store.folder.name, int(folder.name[5:])):
        return f"it is step {clock['step']} of run {clock['run']}"
    log = read_or_empty(store.metrics_path)
    if hashlib.sha256(log[: clock["metrics_bytes"]]).hexdigest() != clock["metrics_sha256"]:
        return f"{store.metrics_path.name} is damaged before its end"
    return None


def mark_damaged(store: RunStore, folder: Path) -> None:
    """Rename a checkpoint, so that no run resumes from it."""
    renamed = folder.with_name(f"{folder.name}{DAMAGED_SUFFIX}")
    if renamed.exists():
        store.remove(renamed)
    folder.rename(renamed)


def clocks(store: RunStore) -> dict[Path, Clock]:
    """Return the clock.json of every checkpoint, by folder in order of steps; skip damaged ones."""
    by_folder = {}
    for folder in sorted(store.checkpoints.glob(STEP)):
        with suppress(ValueError):
            if checkpoint.damage(folder, only="clock.json") is None:
                by_folder[folder] = store.clock(folder)
    return by_folder


def evaluation_points(store: RunStore) -> dict[int, float]:
    """Return the step of every checkpoint that is to be evaluated, with its training seconds."""
    points = clocks(store).values()
    return {clock["step"]: clock["train_seconds"] for clock in points if clock["evaluation"]}


def evaluated_steps(store: RunStore) -> set[int]:
    """Return the steps that have a file of evaluation records."""
    paths = store.folder.glob(f"evaluations/{STEP}.jsonl")
    return {int(path.stem[5:]) for path in paths if path.is_file()}


def abandoned_paths(store: RunStore) -> list[Path]:
    """Return what killed processes have left half written or half removed."""
    return [path for pattern in ABANDONED for path in sorted(store.folder.glob(pattern))]


def remove_stopgaps(store: RunStore, before: int) -> None:
    """Remove the checkpoints before a step that were only to resume from."""
    for folder, clock in clocks(store).items():
        if clock["step"] < before and not clock["evaluation"]:
            store.remove(folder)


def roll_back(store: RunStore, step: int, metrics_bytes: int) -> None:
    """Discard everything that happened after the checkpoint of a step."""
    if store.metrics_path.is_file():
        os.truncate(store.metrics_path, metrics_bytes)
    for folder in ("checkpoints", "evaluations", "rollouts"):
        for path in store.folder.glob(f"{folder}/{STEP}*"):
            if path.suffix != DAMAGED_SUFFIX and int(path.name[5:11]) > step:
                store.remove(path)
