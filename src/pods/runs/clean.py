"""Remove what a study no longer needs; nothing outside the study is ever touched.

A link in the study may lead anywhere. What lies beyond it is left alone and reported; where the
link itself is to be removed, its target is not.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, remove, size
from pods.runs.history import STEP, abandoned_paths
from pods.runs.status import state_of
from pods.runs.store import DAMAGED_SUFFIX, OPTIMIZER, RunStore, run_folders
from pods.system.errors import as_text, is_machine_error


@dataclass(frozen=True)
class Removable:
    """A file or folder that is no longer needed."""

    path: Path
    bytes: int
    why: str
    """Why it is not needed; or, if it is kept, why it is kept."""
    kept: bool = False


def clean(study: Path, states: Sequence[str], dry_run: bool) -> Iterator[Removable]:
    """Remove what no run needs, and yield it; runs that are running are left out.

    Args:
        study: folder of the study.
        states: runs in one of these states are removed as a whole, with all their results.
        dry_run: remove nothing.

    Raises:
        OSError: the disk fails.
    """
    for path in sorted(study.glob(f"*/*/seed*{TRASH}")):
        half_removed = Removable(path, size(path), "half removed")
        yield _first_link(path.parent, study) or (
            half_removed if dry_run else _remove(half_removed, study)
        )
    for folder in run_folders(study):
        try:
            yield from _clean_run(folder, study, states, dry_run)
        except OSError as error:  # such as another user's run: it must not hide the others
            if is_machine_error(error):
                raise
            yield Removable(folder, 0, as_text(error), kept=True)


def _clean_run(
    folder: Path, study: Path, states: Sequence[str], dry_run: bool
) -> Iterator[Removable]:
    store = RunStore(folder)
    link = _run_link(store, study, states)
    if link is not None:
        yield link if dry_run else _remove(link, study)
    elif dry_run:
        if not store.is_held():
            yield from _removable(store, state_of(store), states)
    else:
        with suppress(BlockingIOError), store.lock():  # nothing changes while it is held
            for item in list(_removable(store, state_of(store, ours=True), states)):
                yield _remove(item, study)


def _remove(item: Removable, study: Path) -> Removable:
    """Remove an item unless it lies beyond a link, which may have been created since."""
    item = _first_link(item.path.parent, study) or item
    if item.kept:
        return item
    if item.path.name == OPTIMIZER:
        checkpoint.remove_file(item.path.parent, OPTIMIZER)
    else:
        remove(item.path)
    return item


def _removable(store: RunStore, state: str, states: Sequence[str]) -> Iterator[Removable]:
    """Yield what can be removed of one run, or the run as a whole."""
    if state == "running":  # on another machine
        return
    if state in states:
        yield Removable(store.folder, size(store.folder), f"run is {state}")
        return
    paths = dict.fromkeys(abandoned_paths(store), "left by a killed process")
    if state == "done":
        optimizers = sorted(store.checkpoints.glob(f"{STEP}/{OPTIMIZER}"))
        paths |= dict.fromkeys(optimizers, "needed only to resume, and the run is done")
        damaged = sorted(store.checkpoints.glob(f"*{DAMAGED_SUFFIX}"))
        paths |= dict.fromkeys(damaged, "damaged, and the run has a new one")
    for path, why in paths.items():
        yield _first_link(path.parent, store.folder) or Removable(path, size(path), why)


def _run_link(store: RunStore, study: Path, states: Sequence[str]) -> Removable | None:
    """Return what to do with a run folder that is a link or lies beyond one; None if it is not."""
    folder = store.folder
    if (
        folder.is_symlink()
        and _first_link(folder.parent, study) is None
        and (state := state_of(store)) in states
        and not store.is_held()
    ):
        why = f"run is {state}: a link to {folder.readlink()}, and only the link is removed"
        return Removable(folder, size(folder), why)
    return _first_link(folder / ".lock", study)  # which would be opened, and perhaps created


def _first_link(path: Path, top: Path) -> Removable | None:
    """Return the first link on the way from a folder down to a path, as something that is kept."""
    link = top
    for part in path.relative_to(top).parts:
        link = link / part
        if link.is_symlink():
            why = f"a link to {link.readlink()}: nothing beyond it is removed"
            return Removable(link, 0, why, kept=True)
    return None
