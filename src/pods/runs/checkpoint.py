"""Checkpoints that are whole or not there: temporary folder, fsync, manifest last, rename."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any

from pods.runs.files import fsync, replace, sha256
from pods.runs.reading import LARGE, read_bytes, read_object
from pods.trouble import number_of

MANIFEST = "MANIFEST.json"
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what reading one may raise


def commit(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then make it appear as `folder` in one step.

    A crash at any moment leaves the old state: a temporary folder is never read, and is removed
    by the next commit of the same name.

    Raises:
        OSError: the disk is full or fails; what was committed before is untouched.
    """
    recover(folder.parent)
    temporary, aside = (folder.with_name(f"{folder.name}.{end}") for end in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        folder.parent.mkdir(exist_ok=True)
        temporary.mkdir()
        write(temporary)
        _seal(temporary)
        if folder.exists():
            folder.rename(aside)
        temporary.rename(folder)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)  # a full disk must not stay full for it
        recover(folder.parent)
        explained = _explained(error, folder)
        if explained is None:
            raise
        raise explained from error
    try:
        fsync(folder.parent)
    except OSError as error:
        why = f"{error.strerror}: the checkpoint is there, but may not outlast a power cut"
        raise OSError(error.errno, why, str(folder)) from error
    shutil.rmtree(aside, ignore_errors=True)


def recover(parent: Path) -> None:
    """Put back what a commit had moved aside when it was cut off between its two renames."""
    for aside in parent.glob("*.old"):
        folder = aside.with_suffix("")
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(folder)


def damage(folder: Path, only: str | None = None, read: float = math.inf) -> str | None:
    """What is wrong with a checkpoint, in words; None if all that its manifest lists is whole.

    Args:
        folder: of the checkpoint.
        only: the one file to look at; None: all.
        read: bytes up to which a file is read; of a larger one only its size is looked at.
    """
    try:
        files = files_of(folder)
        if only is None and (strange := _strange(folder, files)) is not None:
            return strange
        for name, entry in files.items() if only is None else [(only, files[only])]:
            path = folder / name
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return f"{name} is missing"
            if not S_ISREG(status.st_mode):
                return f"{name} is missing"
            size = status.st_size
            if size != entry["bytes"] or (size <= read and sha256(path) != entry["sha256"]):
                return f"{name} is damaged"
    except DAMAGED as error:
        return f"{folder.name} cannot be read ({error})"
    return None


def files_of(folder: Path) -> dict[str, Any]:
    """Size and SHA-256 of each file of a checkpoint.

    Raises:
        DAMAGED: the manifest is not there or not what was written.
    """
    path = folder / MANIFEST
    if folder.is_symlink():
        raise ValueError("it is a link")
    files: dict[str, Any] = read_object(path, {"files": (dict,)}, limit=LARGE)["files"]
    if read_bytes(path, LARGE) != _manifest(files).encode():
        raise ValueError(f"{MANIFEST} is damaged")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{MANIFEST} names a file outside of it: {name}")
    return files


def _strange(folder: Path, files: Mapping[str, Any]) -> str | None:
    """What in a checkpoint nobody has written there, in words; a loader would open it.

    What a killed process has left beside the files that are read is none of that.
    """
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return f"{name} is no file"
        if path.is_file() and path.parent != folder and name not in files:
            return f"{name} is not in its manifest"
    return None


def thin(folder: Path, name: str) -> None:
    """Take one file out of a checkpoint; at any moment the rest verifies.

    Raises:
        DAMAGED: as `files_of`; nothing was taken out.
    """
    files = files_of(folder)
    if files.pop(name, None) is not None:
        replace(folder / MANIFEST, _manifest(files), durable=True)
    (folder / name).unlink(missing_ok=True)


def _seal(folder: Path) -> None:
    """Bring everything to the disk, the manifest last."""
    paths = sorted(folder.rglob("*"))
    files = {
        str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": sha256(p)}
        for p in paths
        if p.is_file()
    }
    for path in paths:
        fsync(path)
    replace(folder / MANIFEST, _manifest(files), durable=True)


def _manifest(files: dict[str, Any]) -> str:
    return json.dumps({"files": files, "sha256": _digest(files)}, indent=1)


def _digest(files: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _explained(error: Exception, folder: Path) -> OSError | None:
    """A disk's error with what a user needs to know; safetensors hides its number in the text."""
    number = number_of(error)
    if number is None:
        return None
    free = shutil.disk_usage(folder.parent).free
    return OSError(
        number,
        f"{os.strerror(number)}: no checkpoint was written ({free:,} bytes are free); "
        "what was committed before is untouched",
        str(folder),
    )
