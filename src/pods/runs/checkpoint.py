"""Commit folders that exist completely or not at all: temporary folder, fsync, manifest, rename."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pods.runs.files import fsync, remove, sha256, write_json
from pods.runs.records import ManifestFile, read_json
from pods.system.errors import DISK_FULL, errno_of

MANIFEST = "MANIFEST.json"
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError)  # of a damaged file


def commit(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then make it appear as `folder` in one step.

    A crash at any moment leaves the old state: a temporary folder is never read, and the next
    commit of the same name removes it. A disk that is full or fails is an `OSError`.
    """
    recover(folder.parent)
    temporary = folder.with_name(f"{folder.name}.tmp")
    old = folder.with_name(f"{folder.name}.old")
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
        free = f"{shutil.disk_usage(folder.parent).free:,} bytes are free"
        reason = f"{os.strerror(number)}: no checkpoint was written ({free}); earlier ones are kept"
        raise OSError(number, reason, str(folder)) from error

    fsync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(parent: Path) -> None:
    """Put back a folder that an interrupted commit had renamed to make room for a new one."""
    for old in parent.glob("*.old"):
        folder = old.with_suffix("")
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(folder)


def damage(folder: Path, only: str | None = None) -> str | None:
    """Describe what is wrong with a checkpoint; None if its files are those of its manifest.

    With `only` that one file is checked.
    """
    try:
        files = manifest_files(folder)
        checked = files if only is None else {only: files[only]}
        for name, entry in checked.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != entry["bytes"] or sha256(path) != entry["sha256"]:
                return f"{name} is damaged"
    except READ_ERRORS as error:
        return f"{folder.name} cannot be read ({error})"
    return None


def manifest_files(folder: Path) -> dict[str, ManifestFile]:
    """Return size and SHA-256 of each file of a checkpoint; damage raises `READ_ERRORS`."""
    path = folder / MANIFEST
    files = read_json(path, dict[str, ManifestFile])

    if path.read_text("utf-8") != json.dumps(files, indent=1):
        raise ValueError(f"{MANIFEST} is damaged")
    return files


def remove_part(folder: Path, name: str) -> None:
    """Remove a file or folder of a checkpoint.

    The rest is valid at any moment, unless the disk is full: then the part goes first, since its
    space is all that the new manifest can get.
    """
    files = manifest_files(folder)
    kept = {}
    for path, entry in files.items():
        if path != name and not path.startswith(f"{name}/"):
            kept[path] = entry
    if kept != files:
        try:
            write_json(folder / MANIFEST, kept)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            remove(folder / name)
            write_json(folder / MANIFEST, kept)
    if (folder / name).exists():
        remove(folder / name)


def _seal(folder: Path) -> None:
    paths = sorted(folder.rglob("*"))
    for path in paths:
        fsync(path)

    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
        if path.is_file()
    }
    write_json(folder / MANIFEST, files)
