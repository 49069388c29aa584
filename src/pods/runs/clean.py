"""Remove what a study no longer needs; nothing beyond a link is touched."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, first_link, remove, size
from pods.runs.history import STEP, abandoned_paths
from pods.runs.status import state_of
from pods.runs.store import DAMAGED_SUFFIX, OPTIMIZER, RunStore, run_folders
from pods.system.errors import as_text

Removed = tuple[Path, int | None, str]


def clean(study: Path, run: Path | None, states: Sequence[str], dry_run: bool) -> Iterator[Removed]:
    """Remove what no run needs, unless `dry_run`; yield path, bytes and reason of each item.

    With `states` only runs in one of them are removed, as a whole, with all their results. The one
    `run` of the study may be named. Runs that are running are left out, and so is what lies beyond
    a link. Of a run that cannot be read the bytes are None.
    """
    trash = () if run else sorted(study.glob(f"*/*/seed*{TRASH}"))
    yield from _remove(study, dict.fromkeys(trash, "half removed"), dry_run)
    for store in map(RunStore, [run] if run else run_folders(study)):
        try:
            lock = nullcontext() if dry_run else store.lock()
            with suppress(BlockingIOError), lock:  # nothing changes while it is held
                if not (dry_run and store.is_held()):
                    items = _removable(store, state_of(store, ours=True), states)
                    yield from _remove(study, items, dry_run)
        except checkpoint.READ_ERRORS as error:  # one must not hide the others
            yield store.folder, None, f"cannot be read: {as_text(error)}"


def _remove(study: Path, removable: dict[Path, str], dry_run: bool) -> Iterator[Removed]:
    for path, why in removable.items():
        if first_link(study, path.parent) is not None:
            continue
        item = path, size(path), why
        if not dry_run and path.name == OPTIMIZER:
            checkpoint.remove_file(path.parent, OPTIMIZER)
        elif not dry_run:
            remove(path)
        yield item


def _removable(store: RunStore, state: str, states: Sequence[str]) -> dict[Path, str]:
    """Return what can be removed of one run, or the run as a whole, and why."""
    if state == "running":  # on another machine
        return {}
    if states:
        return {store.folder: f"run is {state}"} if state in states else {}
    paths = dict.fromkeys(abandoned_paths(store), "left by a killed process")
    if state == "done":
        optimizers = sorted(store.checkpoints.glob(f"{STEP}/{OPTIMIZER}"))
        paths |= dict.fromkeys(optimizers, "needed only to resume, and the run is done")
        damaged = sorted(store.checkpoints.glob(f"*{DAMAGED_SUFFIX}"))
        paths |= dict.fromkeys(damaged, "damaged, and the run has a new one")
    return paths
