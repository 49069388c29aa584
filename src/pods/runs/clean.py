"""What of a study can go without loss, and its removal."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, remove, size
from pods.runs.history import leftovers
from pods.runs.status import state_of
from pods.runs.store import DAMAGED, OPTIMIZER, RunStore, run_folders


@dataclass(frozen=True)
class Removable:
    """A file or folder that is not needed any more."""

    path: Path
    bytes: int
    why: str


def removable(study: Path, states: Sequence[str]) -> Iterator[Removable]:
    """What can go; runs that some process holds, or that run elsewhere, are left out.

    Args:
        study: folder of the study.
        states: of runs that are to go whole, with all their results.
    """
    yield from _half_removed(study)
    for folder in run_folders(study):
        store = RunStore(folder)
        if not store.is_held():
            yield from _of_run(store, state_of(store), states)


def clean(study: Path, states: Sequence[str]) -> Iterator[Removable]:
    """Remove it, and yield what was removed.

    Each run is held and looked at again first: it may have begun, or ended well, in between.
    """
    for item in list(_half_removed(study)):
        remove(item.path)
        yield item
    for folder in run_folders(study):
        store = RunStore(folder)
        with suppress(BlockingIOError), store.lock():
            for item in list(_of_run(store, state_of(store, ours=True), states)):
                if item.path.name == OPTIMIZER:
                    checkpoint.thin(item.path.parent, OPTIMIZER)
                else:
                    remove(item.path)
                yield item


def _half_removed(study: Path) -> Iterator[Removable]:
    """Runs whose removal was cut off."""
    for path in sorted(study.glob(f"*/*/seed*{TRASH}")):
        yield Removable(path, size(path), "half removed")


def _of_run(store: RunStore, state: str, states: Sequence[str]) -> Iterator[Removable]:
    """Of one run: all of it, or leftovers of killed processes and what only a resume needs."""
    if state == "running":  # on another machine
        return
    if state in states:
        yield Removable(store.folder, size(store.folder), f"run is {state}")
        return
    for path in leftovers(store):
        yield Removable(path, size(path), "left by a killed process")
    if state == "done":
        for path in sorted(store.checkpoints.glob(f"step-??????/{OPTIMIZER}")):
            yield Removable(path, size(path), "only to go on from, and the run is done")
        for path in sorted(store.checkpoints.glob(f"*{DAMAGED}")):
            yield Removable(path, size(path), "damaged, and made again")
