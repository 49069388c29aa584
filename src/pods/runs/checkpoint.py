"""Checkpoints that are whole or not there: temporary folder, fsync, manifest last, rename."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pods.runs.files import replace, sha256

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
        str(p.relative_to(temporary)): {"bytes": p.stat().st_size, "sha256": sha256(p)}
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
        return all(
            (folder / name).stat().st_size == entry["bytes"]
            and sha256(folder / name) == entry["sha256"]
            for name, entry in _manifest(folder).items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def newest(parent: Path, needs: str = "") -> Path | None:
    """The newest checkpoint that verifies, by step; damaged ones are passed over.

    Args:
        parent: the folder of the checkpoints.
        needs: a file that it must hold, if any.
    """
    folders = sorted(parent.glob("step-??????"), reverse=True)
    whole = (folder for folder in folders if verify(folder))
    return next((folder for folder in whole if not needs or needs in _manifest(folder)), None)


def thin(folder: Path, name: str) -> None:
    """Take one file out of a checkpoint; at any moment the rest verifies."""
    manifest = _manifest(folder)
    if manifest.pop(name, None) is not None:
        replace(folder / MANIFEST, json.dumps(manifest, indent=1))
    (folder / name).unlink(missing_ok=True)


def _manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST).read_text()))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
