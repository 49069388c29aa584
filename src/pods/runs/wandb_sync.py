"""`pods sync`: one W&B run per run folder, rebuilt from the run's own files.

Online, W&B says which rows it has, and only later ones are sent; offline, one fresh W&B folder
takes the place of those that the run's attempts left. So any number of resumes and of syncs gives
one W&B run with each row once. Two limits. W&B's rows cannot be taken back: where a run that was
mirrored online, or that had failed and was sent, went on from an earlier checkpoint, the steps that
it repeated keep the seconds of the first time. And the upload was tried against a stand-in for the
server only, which answers what W&B's client asks, never against W&B itself.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pods.config import Config
from pods.runs import mirror
from pods.runs.files import remove
from pods.runs.mirror import Row
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking import check_key, close_run, in_short, open_run

# of this machine, which is not the one that the run ran on
UNTOLD = {"x_disable_stats": True, "x_disable_machine_info": True, "x_save_requirements": False}


class NotSynced(ValueError):
    """Some runs are not in W&B now."""


def sync(folders: Sequence[Path], offline: bool) -> Iterator[str]:
    """Bring runs to W&B, or into offline folders for its own `wandb sync`; yield a line a run.

    Args:
        folders: of the runs; those that are running are passed over.
        offline: needs neither account nor network.

    Raises:
        ValueError: there is no key.
        NotSynced: W&B failed, or some run could not be read.
    """
    if not offline:
        check_key()
    unread = 0
    for folder in folders:
        name = "/".join(folder.parts[-2:])
        try:
            yield f"{name}: {_sync_one(RunStore(folder), offline)}"
        except NotSynced:  # the next one would wait as long for the same
            raise
        except (ValueError, OSError, KeyError) as error:
            unread += 1
            yield f"{name}: cannot be read: {in_short(error)}"
    if unread:
        raise NotSynced(f"{unread} of {len(folders)} runs could not be read")


def _sync_one(store: RunStore, offline: bool) -> str:
    """Sync one run; return what was done."""
    if store.is_held() or state_of(store) == "running":
        return "passed over: it is running"
    config = store.config()
    whole = offline or state_of(store) in ("done", "failed")  # others go on, from a checkpoint
    rows = mirror.rows(config, store, settled=not whole)
    if not any(row.place % 2 == 0 for row in rows):
        return "no step to tell of yet"
    return _rebuild(config, store, rows) if offline else _upload(config, store, rows)


def _upload(config: Config, store: RunStore, rows: Sequence[Row]) -> str:
    """Send the rows that W&B lacks."""
    place = _scratch(store)
    try:
        new = _write(config, store, rows, place, "online")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return f"{new} rows sent, {len(rows) - new} were there"


def _rebuild(config: Config, store: RunStore, rows: Sequence[Row]) -> str:
    """Make a new offline folder, then put it in the place of the old ones."""
    place, home, old = _scratch(store), store.folder / "wandb", store.folder / "wandb.trash"
    try:
        _write(config, store, rows, place, "offline")
        shutil.rmtree(old, ignore_errors=True)
        with store.lock():
            if home.exists():
                home.rename(old)
            (place / "wandb").rename(home)
    except BlockingIOError:
        return "passed over: it is running"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    [made] = home.glob("offline-run-*")
    return f"{len(rows)} rows in {made}"


def _write(config: Config, store: RunStore, rows: Sequence[Row], place: Path, mode: str) -> int:
    """Write the rows that W&B lacks, the summary and the end; return how many rows."""
    status, summary = store.status(), mirror.summary(store, rows)
    try:
        run = open_run(config, store, place, mode, host=status.get("host", ""), **UNTOLD)
        new = [row for row in rows if row.place >= run.starting_step]
        for row in new:
            run.log(dict(row.values), step=row.place, commit=True)
        close_run(run, summary, 1 if status["state"] == "failed" else 0)
    except Exception as error:  # W&B raises many kinds
        raise NotSynced(f"{store.folder}: W&B failed ({in_short(error)}); nothing is lost: the "
                        "same command again sends what is missing") from error  # fmt: skip
    return len(new)


def _scratch(store: RunStore) -> Path:
    """A place in the run folder; what killed syncs have left there goes."""
    for left in store.folder.glob("wandb.tmp*"):
        remove(left)
    return store.folder / f"wandb.tmp{os.getpid()}"
