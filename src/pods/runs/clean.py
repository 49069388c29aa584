"""Remove what a study no longer needs; nothing beyond a link is touched, nor what others wrote."""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from pods.runs import checkpoint
from pods.runs.files import TRASH, first_link, remove, size
from pods.runs.history import STEP, abandoned_paths, missing_evaluations
from pods.runs.identity import fingerprint
from pods.runs.status import state_of
from pods.runs.store import DAMAGED_SUFFIX, OPTIMIZER, POLICY, RunStore, run_folders
from pods.system.errors import as_text

Removed = tuple[Path, int | None, str]
RUN_NAME = re.compile(r"seed\d+-[0-9a-f]{10}")  # as `identity.run_folder` makes it


def clean(
    study: Path, run: Path | None, states: Sequence[str], weights: bool, dry_run: bool
) -> Iterator[Removed]:
    """Remove what no run needs, unless `dry_run`; yield path, bytes and reason of each item.

    With `states` only runs in one of them are removed, as a whole, with all their results. With
    `weights` those of done runs are removed, too, whose numbers stay. The one `run` of the study
    may be named. Runs that are running are left out, and so is what lies beyond
    a link. Of a run that cannot be read, and of a folder that is no run, the bytes are None.
    """
    if run is None:
        trash = [path for path in study.glob(f"*/*/seed*{TRASH}") if RUN_NAME.fullmatch(path.stem)]
        yield from _remove(study, dict.fromkeys(sorted(trash), "half removed"), dry_run)

    for store in map(RunStore, [run] if run else run_folders(study)):
        try:
            if not _is_run(store):  # asked before the lock, which would be a file in it
                if not store.is_held():  # else the run has only just begun
                    yield store.folder, None, "pods did not write it: it is left alone"
                continue
            lock = nullcontext() if dry_run else store.lock()
            with suppress(BlockingIOError), lock:  # nothing changes while it is held
                if not (dry_run and store.is_held()):
                    items = _removable(store, state_of(store, ours=True), states, weights)
                    yield from _remove(study, items, dry_run)
        except checkpoint.READ_ERRORS as error:  # one must not hide the others
            yield store.folder, None, f"cannot be read: {as_text(error)}"


def _is_run(store: RunStore) -> bool:
    """Say whether pods wrote a folder: its identity, its config or a checkpoint proves it.

    Names of files prove nothing: other trainers write a config.yaml, a status.json and checkpoints,
    too. One of the three proofs is enough, since the other two may be damaged.
    """
    name = store.folder.name
    damaged = FileNotFoundError, ValueError
    with suppress(*damaged):
        if name.endswith(f"-{fingerprint(store.identity())}"):
            return True
    with suppress(*damaged):
        store.config()  # it has every key of a config, and no other one
        return True
    for folder in store.checkpoints.glob(STEP):
        with suppress(*damaged):
            if store.clock(folder)["run"] == name and RUN_NAME.fullmatch(name):
                return True
    return False


def _remove(study: Path, removable: dict[Path, str], dry_run: bool) -> Iterator[Removed]:
    for path, why in removable.items():
        if first_link(study, path.parent) is not None:
            continue
        item = path, size(path), why
        if not dry_run:
            _remove_item(path)
        yield item


def _remove_item(path: Path) -> None:
    if path.name in (OPTIMIZER, POLICY):
        checkpoint.remove_part(path.parent, path.name)
    else:
        remove(path)


def _removable(
    store: RunStore, state: str, states: Sequence[str], weights: bool
) -> dict[Path, str]:
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
    if state == "done" and weights and not missing_evaluations(store):
        policies = sorted(store.checkpoints.glob(f"{STEP}/{POLICY}"))
        paths |= dict.fromkeys(policies, "weights; the run is done and evaluated")
    return paths
