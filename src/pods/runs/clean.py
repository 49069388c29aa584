"""Remove what a study no longer needs; nothing beyond a link is touched, nor what others wrote."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, first_link, remove, size
from pods.runs.history import STEP, abandoned_paths, missing_evaluations
from pods.runs.identity import fingerprint
from pods.runs.status import state_of
from pods.runs.store import DAMAGED_SUFFIX, OPTIMIZER, POLICY, RunStore, run_folders
from pods.system.errors import as_text

RUN_NAME = re.compile(r"seed\d+-[0-9a-f]{10}")  # as `identity.run_folder` makes it


@dataclass(frozen=True)
class Item:
    """What can be removed, or is left alone."""

    path: Path
    bytes: int | None  # None: a run that cannot be read, or a folder that is no run
    why: str


def clean(
    study: Path, run: Path | None, states: Sequence[str], weights: bool, dry_run: bool
) -> Iterator[Item]:
    """Remove what no run needs, unless `dry_run`, and yield each item.

    Runs that are running are left out, and so is what lies beyond a link.

    Args:
        study: the study's folder.
        run: the only run of the study to look at; None: all.
        states: only remove runs in one of them, as a whole, with all their results.
        weights: also remove the weights of done runs, whose numbers stay.
        dry_run: only yield what would be removed.
    """
    if run is None:
        trash = sorted(study.glob(f"*/*/seed*{TRASH}"))
        removed = [path for path in trash if RUN_NAME.fullmatch(path.stem)]
        yield from _remove(study, dict.fromkeys(removed, "half removed"), dry_run)

    folders = run_folders(study) if run is None else [run]
    for folder in folders:
        try:
            yield from _clean_run(study, RunStore(folder), states, weights, dry_run)
        except checkpoint.READ_ERRORS as error:  # one must not hide the others
            yield Item(folder, None, f"cannot be read: {as_text(error)}")


def _clean_run(
    study: Path, store: RunStore, states: Sequence[str], weights: bool, dry_run: bool
) -> Iterator[Item]:
    """Clean one run, unless a process is working on it."""
    if dry_run and store.is_held():
        return
    if not _is_run(store):  # asked before the lock, which would be a file in it
        if not store.is_held():  # else the run has only just begun
            yield Item(store.folder, None, "pods did not write it: it is left alone")
        return
    if dry_run:
        yield from _remove(study, _removable(store, states, weights), dry_run)
        return

    with suppress(BlockingIOError), store.lock():  # nothing changes while it is held
        yield from _remove(study, _removable(store, states, weights), dry_run)


def _is_run(store: RunStore) -> bool:
    """Say whether pods wrote a folder: its identity, its config or a checkpoint proves it.

    Names of files prove nothing: other trainers write a config.yaml, a status.json and checkpoints,
    too. One of the three proofs is enough, since the other two may be damaged.
    """
    name = store.folder.name
    with suppress(FileNotFoundError, ValueError):
        if name.endswith(f"-{fingerprint(store.identity())}"):
            return True
    with suppress(FileNotFoundError, ValueError):
        store.config()  # it has every key of a config, and no other one
        return True

    if RUN_NAME.fullmatch(name) is None:
        return False
    for folder in store.checkpoints.glob(STEP):
        with suppress(FileNotFoundError, ValueError):
            if store.clock(folder)["run"] == name:
                return True
    return False


def _remove(study: Path, removable: dict[Path, str], dry_run: bool) -> Iterator[Item]:
    for path, why in removable.items():
        if first_link(study, path.parent) is not None:
            continue
        item = Item(path, size(path), why)
        if not dry_run:
            _remove_item(path)
        yield item


def _remove_item(path: Path) -> None:
    if path.name in (OPTIMIZER, POLICY):
        checkpoint.remove_part(path.parent, path.name)
    else:
        remove(path)


def _removable(store: RunStore, states: Sequence[str], weights: bool) -> dict[Path, str]:
    """Return what can be removed of one run, or the run as a whole, and why.

    No other process of this machine is working on it.
    """
    state = state_of(store, ours=True)
    if state == "running":  # on another machine
        return {}
    if state in states:
        return {store.folder: f"run is {state}"}
    if states:
        return {}

    paths = dict.fromkeys(abandoned_paths(store), "left by a killed process")
    if state == "done":
        optimizers = sorted(store.checkpoints.glob(f"{STEP}/{OPTIMIZER}"))
        paths |= dict.fromkeys(optimizers, "needed only to train on, and the run is done")
        damaged = sorted(store.checkpoints.glob(f"*{DAMAGED_SUFFIX}"))
        paths |= dict.fromkeys(damaged, "damaged, and the run has a new one")
    if state == "done" and weights and not missing_evaluations(store):
        policies = sorted(store.checkpoints.glob(f"{STEP}/{POLICY}"))
        paths |= dict.fromkeys(policies, "weights; the run is done and evaluated")
    return paths
