"""Files that are whole or not there, and JSON lines: a record is added with one write."""

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


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        start = file.read(SMALL)
        if len(start) < SMALL:  # all of it: the buffer for large ones takes longer to make
            return hashlib.sha256(start).hexdigest()
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def own(path: str, flags: int) -> int:
    """Open a file of a run (for `open`) as nothing but a file: no link is followed, no pipe waited
    for, whoever else may write into the folder.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def content_of(path: Path) -> bytes:
    """A file's bytes; none where there is no file, such as a pipe that would hold its reader."""
    return path.read_bytes() if path.is_file() else b""


def remove(path: Path) -> None:
    """Remove a file or folder; a folder is out of sight in one step, whatever happens then.

    Of a link nothing but itself goes.
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
    """Bytes of a file, or of all files below a folder; of a link its own few."""
    paths = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    found = [one.lstat() for one in paths]
    return sum(one.st_size for one in found if not stat.S_ISDIR(one.st_mode))


class Altered(RuntimeError):
    """What belongs to the run in progress was changed by somebody else.

    The same command goes on from the newest checkpoint, unless there is nothing to `mend` that by.
    """

    def __init__(self, what: str, mend: bool = True) -> None:
        """Say what was changed."""
        super().__init__(what)
        self.mend = mend


def append(path: Path, records: Iterable[Mapping[str, Any]], expected: int | None = None) -> int:
    """Append JSON lines in one write; a write that the disk cuts short is taken back.

    Args:
        path: of the file; its folder may be new, the one around that must be there.
        records: a line each.
        expected: bytes that the file has if nobody else has touched it; None: any.

    Returns:
        How many bytes the file has now.

    Raises:
        Altered: it does not have as many as expected; nothing was written.
        OSError: the disk is full or fails.
    """
    path.parent.mkdir(exist_ok=True)
    text = "".join(json_line(record) for record in records).encode("utf-8", "backslashreplace")
    start = check_size(path, expected)
    with open(path, "ab", buffering=0, opener=own) as file:
        try:
            if file.write(text) != len(text):
                file.truncate(start)
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            error.filename = str(path)
            raise
    return start + len(text)


def check_size(path: Path, expected: int | None) -> int:
    """Bytes of a file, 0 if there is none.

    Raises:
        Altered: it is no file, or not as large as was expected.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        found = 0
    else:
        if not stat.S_ISREG(status.st_mode):
            raise Altered(f"{path} is no file")
        found = status.st_size
    if expected is not None and found != expected:
        raise Altered(f"{path} has {found:,} bytes, and not the {expected:,} that were written")
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a last line that was cut off is left out."""
    return [json.loads(line) for line in _lines(path)]


def read_until_damage(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines up to the first one that is none; what follows is to be made again."""
    found = []
    for line in _lines(path):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return found


def truncate_to(path: Path, records: int) -> None:
    """Cut a file of JSON lines down to its first lines; what is no file, or a link, goes."""
    if path.is_symlink() or not path.is_file():
        path.unlink(missing_ok=True)
    else:
        lines = path.read_bytes().splitlines(keepends=True)[:records]
        os.truncate(path, sum(map(len, lines)))


def replace(path: Path, content: str | bytes, durable: bool = False) -> None:
    """Write a file in one step: readers see the old content or the new.

    Args:
        path: what appears whole.
        content: text is written as UTF-8.
        durable: bring it to the disk, so that even a power cut leaves one or the other.
    """
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    if temporary.is_symlink() or temporary.exists():
        temporary.unlink()  # a dead process of the same number left it, or somebody set a trap
    try:
        with open(temporary, "xb", opener=own) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            fsync(temporary)
        temporary.replace(path)
        if durable:
            fsync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)  # a full disk must not stay full for it
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def drop_temporaries(folder: Path) -> None:
    """Remove what `replace` left half-written in a folder where its process was killed.

    A link may lead out of the study: there nothing is removed.
    """
    for path in () if folder.is_symlink() else folder.glob("*.tmp[0-9]*"):
        number = path.name.rpartition(".tmp")[2]
        if number.isdigit() and not lives(int(number)):
            path.unlink(missing_ok=True)


def lives(process: int) -> bool:
    """Say whether there is a process of this number on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def fsync(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[bytes]:
    return content_of(path).rpartition(b"\n")[0].splitlines()


def json_line(record: Mapping[str, Any]) -> str:
    """One record; NaN and infinity are refused."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
