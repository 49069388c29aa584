"""A run's past: which checkpoints there are, and what to go back to."""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from pods.runs import checkpoint
from pods.runs.files import content_of, lives, read_lines, remove
from pods.runs.store import DAMAGED, RunStore

STEP = f"step-{'[0-9]' * 6}"


def newest_checkpoint(store: RunStore, needs: str) -> tuple[Path | None, dict[Path, str]]:
    """The newest checkpoint to go on from, and what is wrong with those passed over, in words.

    One that a commit had moved aside when it was cut off is put back first.

    Args:
        needs: a file that it must hold; checkpoints without it were thinned.

    Raises:
        OSError: the log cannot be read: that says nothing of any checkpoint.
    """
    checkpoint.recover(store.checkpoints)
    complaints = {}
    for folder in sorted(store.checkpoints.glob(STEP), reverse=True):
        wrong = unfit(store, folder)
        if wrong:
            complaints[folder] = wrong
        elif needs in checkpoint.files_of(folder):
            return folder, complaints
    return None, complaints


def unfit(store: RunStore, folder: Path) -> str | None:
    """What keeps a checkpoint from being used for this run, in words; None if nothing does."""
    return checkpoint.damage(folder) or mismatch(store, folder)


def mismatch(store: RunStore, folder: Path) -> str | None:
    """What in a checkpoint that is whole does not belong to this run, or to its log."""
    try:
        clock = store.clock(folder)
    except ValueError as error:
        return str(error)
    if (clock["run"], clock["step"]) != (store.folder.name, int(folder.name[5:])):
        return f"it is step {clock['step']} of run {clock['run']}"
    logged = content_of(store.metrics_path)
    digest = hashlib.sha256(logged[: clock["metrics_bytes"]]).hexdigest()
    if digest != clock["metrics_sha256"]:
        return f"{store.metrics_path.name} is damaged before its end"
    return None


def set_aside(folder: Path) -> None:
    """Keep a checkpoint that was passed over where nobody goes on from it."""
    aside = folder.with_name(f"{folder.name}{DAMAGED}")
    if aside.exists():
        remove(aside)
    folder.rename(aside)


def clocks(store: RunStore) -> dict[Path, dict[str, Any]]:
    """The clock of every checkpoint by folder, in order of steps; damaged ones left out."""
    folders = sorted(store.checkpoints.glob(STEP))
    found = {}
    for folder in folders:
        with suppress(ValueError):
            if checkpoint.damage(folder, only="clock.json") is None:
                found[folder] = store.clock(folder)
    return found


def evaluation_points(store: RunStore) -> dict[int, float]:
    """Training seconds of every checkpoint that is to be evaluated, by step."""
    found = clocks(store).values()
    return {clock["step"]: clock["train_seconds"] for clock in found if clock["evaluation"]}


def leftovers(store: RunStore) -> list[Path]:
    """What processes that were killed have left half-written or half-removed."""
    patterns = ("*.tmp[0-9]*", "rollouts/*.tmp[0-9]*", "checkpoints/*/*.tmp[0-9]*",
                "checkpoints/*.trash", "checkpoints/*.tmp", "nonfinite/*.tmp",
                "evaluations/*.tmp", "evaluations/*.tmp[0-9]*")  # fmt: skip
    found = [path for pattern in patterns for path in sorted(store.folder.glob(pattern))]
    if (store.folder / "wandb").is_dir():  # else it is the folder that a sync was to replace
        found += store.folder.glob("wandb.trash")
    return [path for path in found if not is_syncs(path)]


def is_syncs(path: Path) -> bool:
    """Say whether it is the folder that a `pods sync` which lives, of another process, fills."""
    found = re.fullmatch(r"wandb\.tmp([0-9]+)", path.name)
    return found is not None and int(found[1]) != os.getpid() and lives(int(found[1]))


def drop_stopgaps(store: RunStore, before: int) -> None:
    """Remove checkpoints that a stopped run went on from, once there is a later one."""
    for folder, clock in clocks(store).items():
        if clock["step"] < before and not clock["evaluation"]:
            remove(folder)


def void_steps(store: RunStore) -> set[int]:
    """Steps in the log that were not applied, for NaN or infinity."""
    return {line["step"] for line in read_lines(store.metrics_path) if line["nonfinite"]}


def gaps(store: RunStore) -> list[float | None]:
    """The mean gap between engine and trainer of every step in the log; None: not measured."""
    return [line.get("logprob_gap_mean") for line in read_lines(store.metrics_path)]


def evaluated_steps(store: RunStore) -> set[int]:
    """Steps that there are evaluation records of."""
    found = store.folder.glob(f"evaluations/{STEP}.jsonl")
    return {int(path.stem[5:]) for path in found if path.is_file()}


def roll_back(store: RunStore, step: int, metrics_bytes: int) -> None:
    """Forget everything that happened after the checkpoint of `step`."""
    if store.metrics_path.is_file():
        os.truncate(store.metrics_path, metrics_bytes)
    else:  # a pipe in its place would hold whoever opens it
        store.metrics_path.unlink(missing_ok=True)
    for folder in ("checkpoints", "evaluations", "rollouts", "nonfinite"):
        for path in (store.folder / folder).glob(f"{STEP}*"):
            if path.suffix != DAMAGED and int(path.name[5:11]) > step:
                remove(path)
