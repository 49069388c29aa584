"""Write files that appear complete or not at all, and append JSON lines in one write."""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pods.runs.records import Damaged, decode_lines, read

TRASH = ".trash"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file that is read once per process, however many jobs there are.

    Raises:
        ValueError: it is a pipe or a device, which may have no end.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path}: must be a file")
    return _cached_sha256(path, status.st_size, status.st_mtime_ns)


@cache
def _cached_sha256(path: Path, size: int, changed: int) -> str:
    return sha256(path)


def read_or_empty(path: Path) -> bytes:
    """Return a file's bytes, as `read`; none if there is no file."""
    if not path.is_file():
        return b""
    return read(path)


def remove(path: Path) -> None:
    """Remove a file, a link (not its target) or a folder, if there is one.

    A folder is first renamed, so that no reader sees a part of it, even if the process is killed.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    if path.suffix != TRASH:
        path = _rename_to_trash(path)

    try:
        shutil.rmtree(path)
    except OSError as error:  # which names the entry alone
        raise OSError(error.errno, error.strerror, str(path)) from error


def _rename_to_trash(folder: Path) -> Path:
    """Rename a folder, unless the disk cannot; return where it is."""
    trash = folder.with_name(f"{folder.name}{TRASH}")
    remove(trash)

    try:
        return folder.rename(trash)
    except OSError as error:
        if error.errno != errno.EXDEV:  # overlayfs renames no folder of its lower layer
            raise
    return folder


def first_link(top: Path, path: Path) -> Path | None:
    """Return the first link below a folder on the way down to a path, which may be one itself."""
    current = top
    for part in path.relative_to(top).parts:
        current = current / part
        if current.is_symlink():
            return current
    return None


def size(path: Path) -> int:
    """Return the bytes of a file or of all files below a folder; a link counts its own bytes."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        return sum(map(size, path.iterdir()))
    except (FileNotFoundError, PermissionError):  # gone by now, or not ours to read
        return 0


def append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON lines in one write; a write that the disk cuts short is undone.

    The file's folder is created if needed, but not the parent of that folder.
    """
    path.parent.mkdir(exist_ok=True)
    text = json_lines(records)

    with open(path, "ab", buffering=0) as file:
        start = file.tell()
        try:
            if file.write(text) != len(text):
                file.truncate(start)
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            error.filename = str(path)
            raise


def json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a line for each record; NaN and infinity raise a `ValueError`."""
    lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def read_lines(path: Path, decode: Callable[[bytes], Any] = json.loads) -> list[dict[str, Any]]:
    """Read JSON lines, but for an incomplete last one; `Damaged` names a line that is no record."""
    content = read_or_empty(path)
    whole_lines = content.rpartition(b"\n")[0]

    try:
        return decode_lines(whole_lines, decode)
    except ValueError as error:
        raise Damaged(path, error) from error


def replace(path: Path, content: str | bytes, durable: bool = False) -> None:
    """Write a file in one step: readers see either the old content or the new.

    With `durable` it is flushed to the disk, so that a power cut also leaves one of them.
    """
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    if isinstance(content, str):
        content = content.encode()

    try:
        temporary.write_bytes(content)
        if durable:
            fsync(temporary)
        temporary.replace(path)
        if durable:
            fsync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)  # so that it does not keep a full disk full
        if isinstance(error, OSError):  # which names the temporary file, or none
            error.filename = str(path)
        raise


def write_json(path: Path, content: object) -> None:
    """Write a small file in one step, so that a power cut leaves the old content or the new."""
    replace(path, json.dumps(content, indent=1), durable=True)


def fsync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)

    try:
        os.fsync(descriptor)
    except OSError as error:  # which names nothing
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
