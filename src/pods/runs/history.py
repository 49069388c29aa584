"""Read a run's history: its checkpoints, the one to resume from, and those to discard."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods.runs import checkpoint
from pods.runs.files import read_lines, read_or_empty, remove
from pods.runs.store import DAMAGED_SUFFIX, RunStore

STEP = f"step-{'[0-9]' * 6}"
ABANDONED = (
    "*.tmp[0-9]*",
    "tensorboard.trash",
    "wandb.tmp",
    "wandb.trash",
    "rollouts/*.tmp[0-9]*",
    "checkpoints/*/*.tmp[0-9]*",
    "checkpoints/*.trash",
    "checkpoints/*.tmp",
    "nonfinite/*.tmp",
    "evaluations/*.tmp",
    "evaluations/*.tmp[0-9]*",
    "evaluations/*/*.tmp",
    "evaluations/*/*.tmp[0-9]*",
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
    """Say why a checkpoint cannot be used for this run; None if it can.

    Of files larger than `max_bytes` only the size is checked, not the content.
    """
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


def mark_damaged(folder: Path) -> None:
    """Rename a checkpoint, so that no run resumes from it."""
    renamed = folder.with_name(f"{folder.name}{DAMAGED_SUFFIX}")
    if renamed.exists():
        remove(renamed)
    folder.rename(renamed)


def clocks(store: RunStore) -> dict[Path, dict[str, Any]]:
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


def further_sets(store: RunStore) -> list[str]:
    """Return the names of the further test sets that any checkpoint was evaluated on."""
    paths = store.folder.glob(f"evaluations/*/{STEP}.jsonl")
    return sorted({path.parent.name for path in paths if not path.parent.is_symlink()})


def evaluated_steps(store: RunStore, test_set: str = "") -> set[int]:
    """Return the steps that have a file of evaluation records on a test set."""
    paths = (store.folder / "evaluations" / test_set).glob(f"{STEP}.jsonl")
    return {int(path.stem[5:]) for path in paths if path.is_file()}


def skipped_steps(store: RunStore) -> set[int]:
    """Return the steps of the log that were not applied because of NaN or infinity."""
    return {line["step"] for line in read_lines(store.metrics_path) if line["nonfinite"]}


def logprob_gaps(store: RunStore) -> list[float | None]:
    """Return each step's mean difference of log-probs between engine and trainer, if measured."""
    return [line.get("logprob_gap_mean") for line in read_lines(store.metrics_path)]


def abandoned_paths(store: RunStore) -> list[Path]:
    """Return what killed processes have left half written or half removed."""
    return [path for pattern in ABANDONED for path in sorted(store.folder.glob(pattern))]


def remove_stopgaps(store: RunStore, before: int) -> None:
    """Remove the checkpoints before a step that were only to resume from."""
    for folder, clock in clocks(store).items():
        if clock["step"] < before and not clock["evaluation"]:
            remove(folder)


def roll_back(store: RunStore, step: int, metrics_bytes: int) -> None:
    """Discard everything that happened after the checkpoint of a step."""
    if store.metrics_path.is_file():
        os.truncate(store.metrics_path, metrics_bytes)
    else:  # something else, such as a pipe, which would block whoever opens it
        store.metrics_path.unlink(missing_ok=True)
    for folder in ("checkpoints", "evaluations", "evaluations/*", "rollouts", "nonfinite"):
        for path in store.folder.glob(f"{folder}/{STEP}*"):
            if path.suffix != DAMAGED_SUFFIX and int(path.name[5:11]) > step:
                remove(path)
