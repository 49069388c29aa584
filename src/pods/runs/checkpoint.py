"""Commit folders that exist completely or not at all: temporary folder, fsync, manifest, rename."""

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
from pods.system.errors import errno_of

MANIFEST = "MANIFEST.json"
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Exceptions that reading a damaged file of a run can raise."""


def commit(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then make it appear as `folder` in one step.

    A crash at any moment leaves the old state: a temporary folder is never read, and the next
    commit of the same name removes it.

    Raises:
        OSError: the disk is full or fails; what was committed before is untouched.
    """
    recover(folder.parent)
    temporary, old = (folder.with_name(f"{folder.name}.{suffix}") for suffix in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        folder.parent.mkdir(exist_ok=True)
        temporary.mkdir()
        write(temporary)
        _seal(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)  # so that it does not keep a full disk full
        recover(folder.parent)
        number = errno_of(error)  # safetensors hides it in the text
        if number is None:
            raise
        free = shutil.disk_usage(folder.parent).free
        reason = (
            f"{os.strerror(number)}: no checkpoint was written ({free:,} bytes are free); "
            "what was committed before is untouched"
        )
        raise OSError(number, reason, str(folder)) from error
    try:
        fsync(folder.parent)
    except OSError as error:
        reason = f"{error.strerror}: the checkpoint exists, but may not survive a power cut"
        raise OSError(error.errno, reason, str(folder)) from error
    shutil.rmtree(old, ignore_errors=True)


def recover(parent: Path) -> None:
    """Put back a folder that an interrupted commit had renamed to make room for a new one."""
    for old in parent.glob("*.old"):
        folder = old.with_suffix("")
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(folder)


def damage(folder: Path, only: str | None = None, max_bytes: float = math.inf) -> str | None:
    """Describe what is wrong with a checkpoint; None if its files are those of its manifest.

    Args:
        only: name of the one file to check; None: all.
        max_bytes: of a larger file only the size is checked, not the content.
    """
    try:
        files = manifest_files(folder)
        if only is None and (unlisted := _unlisted(folder, files)) is not None:
            return unlisted
        for name, entry in files.items() if only is None else [(only, files[only])]:
            path = folder / name
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return f"{name} is missing"
            if not S_ISREG(status.st_mode):
                return f"{name} is missing"
            size = status.st_size
            if size != entry["bytes"] or (size <= max_bytes and sha256(path) != entry["sha256"]):
                return f"{name} is damaged"
    except READ_ERRORS as error:
        return f"{folder.name} cannot be read ({error})"
    return None


def manifest_files(folder: Path) -> dict[str, Any]:
    """Return size and SHA-256 of each file of a checkpoint, by name.

    Raises:
        READ_ERRORS: the manifest is missing or not what was written.
    """
    path = folder / MANIFEST
    if folder.is_symlink():
        raise ValueError("it is a link")
    files: dict[str, Any] = read_object(path, {"files": (dict,)}, limit=LARGE)["files"]
    if read_bytes(path, LARGE) != _manifest(files).encode():
        raise ValueError(f"{MANIFEST} is damaged")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{MANIFEST} names a file outside of the checkpoint: {name}")
    return files


def _unlisted(folder: Path, files: Mapping[str, Any]) -> str | None:
    """Describe what a checkpoint has beyond its manifest; a loader of the weights would open it.

    Files directly in the folder are exempt: a killed process may leave some, which nothing opens.
    """
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return f"{name} is not a regular file"
        if path.is_file() and path.parent != folder and name not in files:
            return f"{name} is not in its manifest"
    return None


def remove_file(folder: Path, name: str) -> None:
    """Remove one file from a checkpoint; the rest is valid at any moment.

    Raises:
        READ_ERRORS: as `manifest_files`; nothing was removed.
    """
    files = manifest_files(folder)
    if files.pop(name, None) is not None:
        replace(folder / MANIFEST, _manifest(files), durable=True)
    (folder / name).unlink(missing_ok=True)


def _seal(folder: Path) -> None:
    """Flush everything to the disk and write the manifest last."""
    paths = sorted(folder.rglob("*"))
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
        if path.is_file()
    }
    for path in paths:
        fsync(path)
    replace(folder / MANIFEST, _manifest(files), durable=True)


def _manifest(files: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return json.dumps({"files": files, "sha256": digest}, indent=1)
