"""`pods sync`: one W&B run per run folder, rebuilt from the run's own files.

Offline, one fresh W&B folder takes the place of those that the run's attempts left: each row once.
Online, W&B takes rows only in order, and says which place is next: what lies before is never sent
again, nor made good. So nothing is sent past an evaluation or a line that is missing here, and W&B
is asked how many rows it has: if those before its place are fewer than here, that is said, and is
not mended by another sync. Where a run that was mirrored online, or that had failed and was sent,
went on from an earlier checkpoint, the steps that it repeated keep the seconds of the first time.
The upload was tried against a stand-in for the server only, which answers what W&B's client asks,
never against W&B itself.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pods.config import Config
from pods.runs import mirror
from pods.runs.checkpoint import DAMAGED
from pods.runs.files import TRASH, remove
from pods.runs.history import is_syncs
from pods.runs.mirror import History, Row
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking import check_key, close_run, open_run, rows_there
from pods.trouble import in_short

# of this machine, which is not the one that the run ran on
UNTOLD = {"x_disable_stats": True, "x_disable_machine_info": True, "x_save_requirements": False}


class NotSynced(ValueError):
    """Some runs are not in W&B now, or not wholly."""


class _NotWhole(Exception):
    """A run was brought to W&B, but not all of it; the message says what was and what was not."""


def sync(folders: Sequence[Path], offline: bool) -> Iterator[str]:
    """Bring runs to W&B, or into offline folders for its own `wandb sync`; yield a line a run.

    Args:
        folders: of the runs; those that are running are passed over.
        offline: needs neither account nor network.

    Raises:
        ValueError: there is no key.
        NotSynced: W&B failed, or some run could not be read or not be brought there wholly.
    """
    if not offline:
        check_key()
    wrong = 0
    for folder in folders:
        name = "/".join(folder.parts[-2:])
        try:
            yield f"{name}: {_sync_one(RunStore(folder), offline)}"
        except NotSynced:  # the next one would wait as long for the same
            raise
        except _NotWhole as error:
            wrong += 1
            yield f"{name}: {error}"
        except DAMAGED as error:
            wrong += 1
            yield f"{name}: cannot be read: {in_short(error)}"
    if wrong:
        raise NotSynced(f"{wrong} of {len(folders)} runs could not be read or are not whole in W&B")


def _sync_one(store: RunStore, offline: bool) -> str:
    """Sync one run; return what was done."""
    store.refuse_links()
    if store.is_held() or state_of(store) == "running":
        return "passed over: it is running"
    config = store.config()
    whole = offline or state_of(store) in ("done", "failed")  # others go on, from a checkpoint
    told = mirror.history(config, store, settled=not whole)
    if not told.gaps and not any(row.place % 2 == 0 for row in told.rows):
        return "no step to tell of yet"
    return _rebuild(config, store, told) if offline else _upload(config, store, told)


def _upload(config: Config, store: RunStore, told: History) -> str:
    """Send the rows that W&B lacks, up to the first gap; say what it had before.

    Raises:
        _NotWhole: it lacks rows that it takes no more, or there is a gap.
    """
    place = _scratch(store)
    try:
        with _writing(config, store, told, place, "online") as run:
            first = run.starting_step
            rows, gap = told.after(first)
            below = sum(row.place < first for row in told.rows)
            there = _rows_there(run) if below else 0
            _log(run, rows)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sent = f"{len(rows)} rows sent"
    if there is None:
        sent += f", those before place {first} were taken as there"
    elif there >= below:
        sent += f", {below} were there"
    else:
        raise _NotWhole(
            f"{sent}; W&B has {there} of the {below} rows before place {first} and takes the other "
            f"{below - there} no more: `pods sync --offline`, then `wandb sync --id NEW_ID FOLDER`"
        )
    if gap:
        raise _NotWhole(f"{sent}; stopped there, for {gap}: `pods evaluate` may make it again")
    return sent


def _rows_there(run: Any) -> int | None:
    """How many rows W&B has; None if it does not say."""
    try:
        return rows_there(run)
    except Exception:  # W&B raises many kinds
        return None


def _rebuild(config: Config, store: RunStore, told: History) -> str:
    """Make a new offline folder, then put it in the place of the old ones.

    Raises:
        _NotWhole: rows are missing in it, since the run's files lack them.
    """
    place, home = _scratch(store), store.folder / "wandb"
    try:
        with _writing(config, store, told, place, "offline") as run:
            _log(run, told.rows)
        found = [path.name for path in place.glob("wandb/offline-run-*")]
        if not found:
            raise NotSynced(f"{store.folder}: W&B has written no folder; the old one is untouched")
        with store.lock():
            _swap(place / "wandb", home)
    except BlockingIOError:
        return "passed over: it is running"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    made = f"{len(told.rows)} rows in {home / found[0]}"
    if told.gaps:
        raise _NotWhole(f"{made}, without what is damaged or missing: "
                        f"{'; '.join(told.gaps.values())}")  # fmt: skip
    return made


def _swap(new: Path, home: Path) -> None:
    """Put a folder in the place of another, which stays if that fails or is cut off."""
    old = home.with_name(f"{home.name}{TRASH}")
    if old.exists() and not home.exists():  # it was cut off between the two renames
        old.rename(home)
    shutil.rmtree(old, ignore_errors=True)
    if home.exists():
        home.rename(old)
    try:
        new.rename(home)
    except BaseException:
        if old.exists():
            old.rename(home)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _writing(
    config: Config, store: RunStore, told: History, place: Path, mode: str
) -> Iterator[Any]:
    """Open the W&B run; at the end write the summary and how the run ended.

    Raises:
        NotSynced: W&B failed.
    """
    status, summary = store.status(), mirror.summary(store, told.rows)
    try:
        run = open_run(config, store, place, mode, host=status.get("host", ""), **UNTOLD)
        yield run
        close_run(run, summary, 1 if status["state"] == "failed" else 0)
    except Exception as error:  # W&B raises many kinds
        raise NotSynced(f"{store.folder}: W&B failed ({in_short(error)}); nothing is lost: the "
                        "same command again sends what is missing") from error  # fmt: skip


def _log(run: Any, rows: Sequence[Row]) -> None:
    for row in rows:
        run.log(dict(row.values), step=row.place, commit=True)


def _scratch(store: RunStore) -> Path:
    """A place in the run folder; what killed syncs have left there goes."""
    for left in store.folder.glob("wandb.tmp*"):
        if not is_syncs(left):
            remove(left)
    return store.folder / f"wandb.tmp{os.getpid()}"
