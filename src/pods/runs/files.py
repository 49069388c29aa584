"""Write files that appear complete or not at all, and append JSON lines in one write."""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TRASH = ".trash"
SMALL = 2**14  # bytes


class Altered(RuntimeError):
    """Something else than the running process has changed the files of its run.

    The same command resumes from the newest checkpoint, unless the run is not `recoverable`.
    """

    def __init__(self, change: str, recoverable: bool = True) -> None:
        """Say what was changed."""
        super().__init__(change)
        self.recoverable = recoverable


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        start = file.read(SMALL)
        if len(start) < SMALL:  # the whole file: `file_digest` would allocate a large buffer
            return hashlib.sha256(start).hexdigest()
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_no_follow(path: str, flags: int) -> int:
    """Open a file without following a link or waiting for a pipe (an `opener` for `open`)."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def read_or_empty(path: Path) -> bytes:
    """Return a file's bytes; none if there is no regular file, such as a pipe that would block."""
    return path.read_bytes() if path.is_file() else b""


def remove(path: Path) -> None:
    """Remove a file, a link (not its target) or a folder.

    A folder is first renamed, so that no reader sees a part of it, even if the process is killed.
    """
    if path.is_dir() and not path.is_symlink():
        trash = path if path.suffix == TRASH else path.with_name(f"{path.name}{TRASH}")
        if trash != path:
            if trash.is_symlink() or trash.exists():
                remove(trash)
            path.rename(trash)
        try:
            shutil.rmtree(trash)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(trash)) from error
    else:
        path.unlink()


def size(path: Path) -> int:
    """Return the bytes of a file or of all files below a folder; a link counts its own bytes."""
    paths = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    entries = [entry.lstat() for entry in paths]
    return sum(entry.st_size for entry in entries if not stat.S_ISDIR(entry.st_mode))


def append(path: Path, records: Iterable[Mapping[str, Any]], expected: int | None = None) -> int:
    """Append JSON lines in one write; undo a write that the disk cuts short.

    Args:
        path: of the file. Its folder is created if needed, but not the parent of that folder.
        records: one per line.
        expected: size in bytes that the file has if nothing else has written to it; None: any.

    Returns:
        The new size of the file in bytes.

    Raises:
        Altered: the file does not have the expected size; nothing was written.
        OSError: the disk is full or fails.
    """
    path.parent.mkdir(exist_ok=True)
    text = "".join(json_line(record) for record in records).encode("utf-8", "backslashreplace")
    start = check_size(path, expected)
    with open(path, "ab", buffering=0, opener=open_no_follow) as file:
        try:
            if file.write(text) != len(text):
                file.truncate(start)
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            error.filename = str(path)
            raise
    return start + len(text)


def check_size(path: Path, expected: int | None) -> int:
    """Return a file's size in bytes, 0 if there is no file.

    Raises:
        Altered: it is not a regular file, or not of the expected size.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        actual = 0
    else:
        if not stat.S_ISREG(status.st_mode):
            raise Altered(f"{path} is not a regular file")
        actual = status.st_size
    if expected is not None and actual != expected:
        raise Altered(f"{path} has {actual:,} bytes, but {expected:,} were written")
    return actual


def json_line(record: Mapping[str, Any]) -> str:
    """Return one record as a line; NaN and infinity raise a `ValueError`."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; ignore an incomplete last line."""
    return [json.loads(line) for line in _complete_lines(path)]


def read_until_damage(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines up to the first one that is not JSON."""
    records = []
    for line in _complete_lines(path):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return records


def _complete_lines(path: Path) -> list[bytes]:
    return read_or_empty(path).rpartition(b"\n")[0].splitlines()


def truncate_to(path: Path, records: int) -> None:
    """Keep only the first lines of a file; remove what is not a regular file, such as a link."""
    if path.is_symlink() or not path.is_file():
        path.unlink(missing_ok=True)
    else:
        lines = path.read_bytes().splitlines(keepends=True)[:records]
        os.truncate(path, sum(map(len, lines)))


def replace(path: Path, content: str | bytes, durable: bool = False) -> None:
    """Write a file in one step: readers see either the old content or the new.

    Args:
        content: text is encoded as UTF-8.
        durable: flush to the disk, so that a power cut also leaves either the one or the other.
    """
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    if temporary.is_symlink() or temporary.exists():
        temporary.unlink()  # left by a dead process with the same number, or set as a trap
    try:
        with open(temporary, "xb", opener=open_no_follow) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            fsync(temporary)
        temporary.replace(path)
        if durable:
            fsync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)  # so that it does not keep a full disk full
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def drop_temporaries(folder: Path) -> None:
    """Remove the unfinished files that a killed process has left in a folder by `replace`.

    A folder that is a link may lead out of the study, so nothing is removed there.
    """
    for path in () if folder.is_symlink() else folder.glob("*.tmp[0-9]*"):
        number = path.name.rpartition(".tmp")[2]
        if number.isdigit() and not _process_exists(int(number)):
            path.unlink(missing_ok=True)


def _process_exists(number: int) -> bool:
    """Say whether a process of this machine has this number."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def fsync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
