"""Checkpoints that are whole or not there: temporary folder, fsync, manifest last, rename."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

MANIFEST = "MANIFEST.json"


def commit(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then make it appear as `folder` in one step.

    A crash at any moment leaves the old state: a temporary folder is never read, and is removed
    by the next commit of the same name.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    files = sorted(p for p in temporary.rglob("*") if p.is_file())
    manifest = {
        str(p.relative_to(temporary)): {"bytes": p.stat().st_size, "sha256": _digest(p)}
        for p in files
    }
    (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
    folders = [p for p in temporary.rglob("*") if p.is_dir()]
    for path in [*files, *folders, temporary / MANIFEST, temporary]:
        _fsync(path)
    aside = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
    temporary.rename(folder)
    _fsync(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def verify(folder: Path) -> bool:
    """Say whether every file of the manifest is there, whole and unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return all(
            (folder / name).stat().st_size == entry["bytes"]
            and _digest(folder / name) == entry["sha256"]
            for name, entry in manifest.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def newest(parent: Path) -> Path | None:
    """The newest checkpoint that verifies, by step; damaged ones are passed over."""
    folders = sorted(parent.glob("step-??????"), reverse=True)
    return next((folder for folder in folders if verify(folder)), None)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
