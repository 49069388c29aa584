"""What of a study can go without loss, and its removal."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import remove, size
from pods.runs.status import state_of
from pods.runs.store import OPTIMIZER, RunStore


@dataclass(frozen=True)
class Removable:
    """A file or folder that is not needed any more."""

    store: RunStore
    path: Path
    bytes: int
    why: str


def removable(folders: Sequence[Path], states: Sequence[str]) -> Iterator[Removable]:
    """What can go: leftovers of killed processes, optimizers of finished runs, runs by state.

    Args:
        folders: of the runs; one that is running is left alone.
        states: of runs that are to go whole, with all their results.
    """
    for folder in folders:
        store = RunStore(folder)
        state = state_of(store)
        if state == "running" or store.is_held():
            continue
        if state in states:
            yield Removable(store, folder, size(folder), f"run is {state}")
            continue
        for path in store.leftovers():
            yield Removable(store, path, size(path), "left by a killed process")
        if state == "done":
            for path in sorted(store.checkpoints.glob(f"step-??????/{OPTIMIZER}")):
                yield Removable(store, path, size(path), "only to go on from, and the run is done")


def clean(items: Sequence[Removable]) -> Iterator[Removable]:
    """Remove what was found, and yield what was removed; a run that has begun since is left."""
    for item in items:
        with suppress(BlockingIOError), item.store.lock():
            if item.path.name == OPTIMIZER:
                checkpoint.thin(item.path.parent, OPTIMIZER)
            else:
                remove(item.path)
            yield item
