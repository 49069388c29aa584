"""Bring finished and interrupted runs to W&B or TensorBoard from their files: `pods sync`.

Offline, one new W&B folder with each row once replaces those that the run's attempts have left.

Online, W&B takes rows only in order of their positions, so nothing is sent past an evaluation or a
line that is missing, and it is reported if W&B lacks rows that it can no longer take. Steps that a
resumed run has repeated keep the seconds that were sent first. The upload was tried against a
stand-in for the server only, never against W&B itself.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pods.config.schema import Config
from pods.runs.checkpoint import READ_ERRORS
from pods.runs.files import remove
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.runs.tracking.exporter import ENDED, WandbRun, check_key
from pods.runs.tracking.rows import History, read_history, summary
from pods.runs.tracking.tensorboard import FOLDER, TensorBoardRun, check_installed
from pods.system.errors import as_short_text

# this machine is not the one that the run ran on
NO_MACHINE = {"x_disable_stats": True, "x_disable_machine_info": True, "x_save_requirements": False}


class NotSynced(ValueError):
    """Some runs are not in W&B, or not completely."""


def sync(folders: Sequence[Path], offline: bool, tensorboard: bool = False) -> Iterator[str]:
    """Bring runs to W&B, or into offline folders for `wandb sync`; yield one line per run.

    Args:
        folders: of the runs; those that are running are skipped.
        offline: needs neither an account nor a network.
        tensorboard: write TensorBoard files instead, which needs no W&B.

    Raises:
        ValueError: there is no key, or tensorboardX is not installed.
        NotSynced: W&B failed, or some run could not be read or is not complete there.
    """
    if tensorboard:
        check_installed()
    elif not offline:
        check_key()
    incomplete = 0
    for folder in folders:
        try:
            message, complete = _sync_run(RunStore(folder), offline, tensorboard)
        except NotSynced:  # the next run would wait as long for the same error
            raise
        except READ_ERRORS as error:
            message, complete = f"cannot be read: {as_short_text(error)}", False
        incomplete += not complete
        yield f"{'/'.join(folder.parts[-2:])}: {message}"
    if incomplete:
        raise NotSynced(
            f"{incomplete} of {len(folders)} runs could not be read or are not complete in W&B"
        )


def _sync_run(store: RunStore, offline: bool, tensorboard: bool) -> tuple[str, bool]:
    """Sync one run; return a message, and whether W&B now has everything that the run has."""
    store.refuse_links()
    state = state_of(store)
    if state == "running" or store.is_held():
        return "skipped: it is running", True
    config = store.config()
    settled = (
        not (offline or tensorboard) and state not in ENDED
    )  # online, what is sent cannot be taken back
    history = read_history(config, store, settled=settled)
    if not history.gaps and not any(row.position % 2 == 0 for row in history.rows):
        return "skipped: it has no steps yet", True
    try:
        if tensorboard:
            with store.lock():
                return _write_events(store, state, history)
        if not offline:
            return _upload(config, store, state, history)
        with store.lock():
            return _rebuild(config, store, state, history)
    except BlockingIOError:
        return "skipped: it is running", True
    except Exception as error:  # W&B raises many kinds
        place = "TensorBoard" if tensorboard else "W&B"
        raise NotSynced(
            f"{store.folder}: {place} failed ({as_short_text(error)}); nothing is lost: the "
            "same command sends what is missing"
        ) from error


def _open(config: Config, store: RunStore, folder: Path, mode: str) -> WandbRun:
    host = store.status().get("host", "")
    return WandbRun(config, store, folder, mode, host=host, **NO_MACHINE)


def _close(wandb_run: WandbRun, store: RunStore, state: str, history: History) -> None:
    wandb_run.close(summary(store, history.rows, state), 1 if state == "failed" else 0)


def _upload(config: Config, store: RunStore, state: str, history: History) -> tuple[str, bool]:
    """Send the rows that W&B lacks, up to the first gap."""
    with TemporaryDirectory(prefix="pods-sync-") as folder:
        wandb_run = _open(config, store, Path(folder), "online")
        first = wandb_run.first
        rows, gap = history.after(first)
        before = sum(row.position < first for row in history.rows)
        logged = wandb_run.count_rows() if before else 0
        wandb_run.send(rows)
        _close(wandb_run, store, state, history)
    message = f"{len(rows)} rows sent"
    if logged is not None and logged < before:
        return (
            f"{message}; W&B has {logged} of the {before} rows before position {first} and can no "
            f"longer take the other {before - logged}: use `pods sync --offline`, then `wandb sync "
            "--id NEW_ID FOLDER`",
            False,
        )
    if logged is None:
        message += f", W&B did not say whether it has the {before} rows before position {first}"
    else:
        message += f", {before} were there"
    if gap is not None:
        return f"{message}; stopped because {gap}: `pods evaluate` may restore it", False
    return message, True


def _rebuild(config: Config, store: RunStore, state: str, history: History) -> tuple[str, bool]:
    """Write a new offline folder, then replace the old ones by it; the lock must be held."""
    folder, target = store.folder / "wandb.tmp", store.folder / "wandb"
    for leftover in store.folder.glob("wandb.tmp*"):
        remove(leftover)
    folder.mkdir()
    try:
        wandb_run = _open(config, store, folder, "offline")
        wandb_run.send(history.rows)
        _close(wandb_run, store, state, history)
        names = [path.name for path in folder.glob("wandb/offline-run-*")]
        if not names:
            raise ValueError("it has written no folder; the old one is unchanged")
        if target.exists():
            remove(target)
        (folder / "wandb").rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _complete(history, target / names[0])


def _write_events(store: RunStore, state: str, history: History) -> tuple[str, bool]:
    """Write new TensorBoard files in place of the old ones; the lock must be held."""
    opened = TensorBoardRun(store)
    opened.send(history.rows)
    opened.close(summary(store, history.rows, state), 0)
    return _complete(history, store.folder / FOLDER)


def _complete(history: History, written: Path) -> tuple[str, bool]:
    """Return a message on rows that were written, and whether none is missing."""
    message = f"{len(history.rows)} rows in {written}"
    if history.gaps:
        missing = "; ".join(history.gaps.values())
        return f"{message}, without what is damaged or missing: {missing}", False
    return message, True
