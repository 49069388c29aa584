"""Files that are whole or not there, and JSON lines: a record is added with one write."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file or folder; a folder is out of sight in one step, whatever happens then."""
    if path.is_dir():
        trash = path.with_name(f"{path.name}.trash")
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash)
    else:
        path.unlink()


def append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON lines in one write; a write that the disk cuts short is taken back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json_line(record) for record in records).encode("utf-8", "backslashreplace")
    with path.open("ab", buffering=0) as file:
        start = file.tell()
        if file.write(text) != len(text):
            file.truncate(start)
            raise OSError(errno.ENOSPC, "the disk is full", str(path))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a last line that was cut off is left out."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def truncate_to(path: Path, records: int) -> None:
    """Cut a file of JSON lines down to its first `records` lines."""
    if path.exists():
        lines = path.read_bytes().splitlines(keepends=True)[:records]
        os.truncate(path, sum(map(len, lines)))


def replace(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old text or the new."""
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def json_line(record: Mapping[str, Any]) -> str:
    """One record; NaN and infinity are refused."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
