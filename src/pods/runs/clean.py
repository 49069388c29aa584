"""What of a study can go without loss, and its removal: nothing outside the study is ever touched.

A link may lead anywhere. So what is reached through one that lies in the study is left alone and
named; of a link that is itself to go, only the link goes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, remove, size
from pods.runs.history import STEP, leftovers
from pods.runs.status import state_of
from pods.runs.store import DAMAGED, OPTIMIZER, RunStore, run_folders
from pods.trouble import in_words, is_machine_trouble


@dataclass(frozen=True)
class Removable:
    """A file or folder that is not needed any more."""

    path: Path
    bytes: int
    why: str
    kept: bool = False
    """It is not to go, for `why`."""


def removable(study: Path, states: Sequence[str]) -> Iterator[Removable]:
    """What can go; runs that some process holds, or that run elsewhere, are left out.

    Args:
        study: folder of the study.
        states: of runs that are to go whole, with all their results.
    """
    yield from _half_removed(study)
    for folder in run_folders(study):
        with _one_run(folder) as unread:
            if (link := _of_link(folder, study, states)) is not None:
                yield link
            elif not (store := RunStore(folder)).is_held():
                yield from _of_run(store, state_of(store), states)
        yield from unread


def clean(study: Path, states: Sequence[str]) -> Iterator[Removable]:
    """Remove it, and yield what was removed.

    Each run is held and looked at again first: it may have begun, or ended well, in between.
    """
    for item in list(_half_removed(study)):
        yield _removed(item, study)
    for folder in run_folders(study):
        with _one_run(folder) as unread:
            if (link := _of_link(folder, study, states)) is not None:
                yield _removed(link, study)
                continue
            store = RunStore(folder)
            with suppress(BlockingIOError), store.lock():
                for item in list(_of_run(store, state_of(store, ours=True), states)):
                    yield _removed(item, study)
        yield from unread


def _removed(item: Removable, study: Path) -> Removable:
    """Remove a thing, unless it lies beyond a link, which may have been put there since."""
    item = _link_to(item.path.parent, study) or item
    if item.kept:
        return item
    if item.path.name == OPTIMIZER:
        checkpoint.thin(item.path.parent, OPTIMIZER)
    else:
        remove(item.path)
    return item


@contextmanager
def _one_run(folder: Path) -> Iterator[list[Removable]]:
    """Let a run that may not be touched, such as another user's, hide no other: it is named.

    Raises:
        OSError: the disk fails.
    """
    unread = list[Removable]()
    try:
        yield unread
    except OSError as error:
        if is_machine_trouble(error):
            raise
        unread.append(Removable(folder, 0, in_words(error), kept=True))


def _half_removed(study: Path) -> Iterator[Removable]:
    """Runs whose removal was cut off."""
    for path in sorted(study.glob(f"*/*/seed*{TRASH}")):
        yield _link_to(path.parent, study) or Removable(path, size(path), "half removed")


def _of_run(store: RunStore, state: str, states: Sequence[str]) -> Iterator[Removable]:
    """Of one run: all of it, or leftovers of killed processes and what only a resume needs."""
    if state == "running":  # on another machine
        return
    if state in states:
        yield Removable(store.folder, size(store.folder), f"run is {state}")
        return
    found = [(path, "left by a killed process") for path in leftovers(store)]
    if state == "done":
        found += [
            (path, "only to go on from, and the run is done")
            for path in sorted(store.checkpoints.glob(f"{STEP}/{OPTIMIZER}"))
        ]
        found += [(path, "damaged, and made again")
                  for path in sorted(store.checkpoints.glob(f"*{DAMAGED}"))]  # fmt: skip
    for path, why in found:
        yield _link_to(path.parent, store.folder) or Removable(path, size(path), why)


def _of_link(folder: Path, study: Path, states: Sequence[str]) -> Removable | None:
    """What becomes of a run's folder that is a link, or lies beyond one; None: it is neither."""
    if _link_to(folder.parent, study) is None and folder.is_symlink():
        store = RunStore(folder)
        if (state := state_of(store)) in states and not store.is_held():
            why = f"run is {state}: a link to {folder.readlink()}, and only the link goes"
            return Removable(folder, size(folder), why)
    return _link_to(folder / ".lock", study)  # which is opened, and may be made


def _link_to(folder: Path, above: Path) -> Removable | None:
    """The first link on the way from one folder down to another, as what is not to go."""
    path = above
    for part in folder.relative_to(above).parts:
        path = path / part
        if path.is_symlink():
            return Removable(path, 0, f"a link to {path.readlink()}: nothing there goes", kept=True)
    return None
