"""Read a run's history: its checkpoints, the one to resume from, and those to discard."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods.runs import checkpoint
from pods.runs.files import read_or_empty, replace
from pods.runs.records import Clock, Damaged, read
from pods.runs.store import DAMAGED_SUFFIX, RunStore

STEP = f"step-{'[0-9]' * 6}"
ABANDONED = (  # what lies in a folder before that folder
    *("*.tmp[0-9]*", "tensorboard.trash", "wandb.trash", "rollouts/*.tmp[0-9]*"),
    *("checkpoints/*/*.tmp[0-9]*", "checkpoints/*.trash", "checkpoints/*.tmp"),
    *("evaluations/*.tmp", "evaluations/*.tmp[0-9]*"),
    *("attempts/*/*.tmp[0-9]*", "evaluation_attempts/*/*.tmp[0-9]*"),
)


def newest_checkpoint(store: RunStore, needs: str) -> tuple[Path | None, dict[Path, str]]:
    """Return the newest checkpoint to resume from, and the later ones with their faults.

    One that an interrupted commit had renamed is put back first. The checkpoint must have the file
    that is named by `needs`, which older ones have lost. If nothing but the log keeps the run from
    going on after some step, that is `Damaged`.
    """
    checkpoint.recover(store.checkpoints)
    faults, altered, first = dict[Path, str](), False, store.checkpoint(0)
    for folder in sorted(store.checkpoints.glob(STEP), reverse=True):
        fault = checkpoint_fault(store, folder)
        if fault is None and is_log_altered(store, folder):
            fault, altered = f"{store.metrics_path.name} is not what was written", True
        if fault:
            faults[folder] = fault
        elif needs in checkpoint.manifest_files(folder) and not (altered and folder == first):
            return folder, faults
    if altered:
        cure = f"restore it, or remove {store.checkpoints} and the run starts again"
        raise Damaged(store.metrics_path, f"it is not what was written: {cure}")
    return None, faults


def checkpoint_fault(store: RunStore, folder: Path, **checked: Any) -> str | None:
    """Say why a checkpoint is not one that this run made; None if it is. See `damage`."""
    if (fault := checkpoint.damage(folder, **checked)) is not None:
        return fault
    try:
        clock = store.clock(folder)
    except ValueError as error:
        return str(error)
    if (clock["run"], clock["step"]) != (store.folder.name, int(folder.name[5:])):
        return f"it is step {clock['step']} of run {clock['run']}"
    return None


def is_log_altered(store: RunStore, folder: Path) -> bool:
    """Return whether the log up to an intact checkpoint has changed since."""
    clock = store.clock(folder)
    log = read_or_empty(store.metrics_path)[: clock["metrics_bytes"]]
    return hashlib.sha256(log).hexdigest() != clock["metrics_sha256"]


def mark_damaged(store: RunStore, path: Path) -> None:
    """Rename a checkpoint or a file of rollouts, so that nothing reads it."""
    if (renamed := path.with_name(f"{path.name}{DAMAGED_SUFFIX}")).exists():
        store.remove(renamed)
    shutil.move(path, renamed)  # which copies where an overlay cannot rename


def check_rollouts(store: RunStore, report: Callable[[str], None]) -> None:
    """Set files of rollouts aside that are damaged, and report each in one line."""
    for path in sorted(store.folder.glob(f"rollouts/{STEP}.jsonl.gz")):
        try:
            read(path)
        except Damaged as fault:
            report(f"set aside: {fault}")
            mark_damaged(store, path)


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
    """Return what killed processes have left half written or half removed.

    Another process may be writing queued.json, see `set_queued`.
    """
    found = [path for pattern in ABANDONED for path in sorted(store.folder.glob(pattern))]
    return [path for path in found if not path.name.startswith("queued.json")]


def roll_back(store: RunStore, step: int, metrics_bytes: int) -> None:
    """Discard everything that happened after the checkpoint of a step."""
    if store.metrics_path.is_file():  # replaced, since a hard link to it may be a backup
        replace(store.metrics_path, read_or_empty(store.metrics_path)[:metrics_bytes], durable=True)
    for path in store.folder.glob(f"*/{STEP}*"):
        if path.suffix != DAMAGED_SUFFIX and int(path.name[5:11]) > step:
            store.remove(path)
