"""Lock a run folder with `flock`, which the operating system releases when the process dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

WAIT_SECONDS = 0.3  # `is_held` also holds the lock, for a moment
POLL_SECONDS = WAIT_SECONDS / 10


class LockLost(RuntimeError):
    """The lock file, or the folder around it, was removed or replaced while it was held."""


@dataclass(frozen=True)
class RunLock:
    """A run's lock, held by this process."""

    path: Path
    file: TextIO

    def check_held(self) -> None:
        """Check before each write that no other process can hold the lock.

        Raises:
            LockLost: the file that this process has locked is no longer the run's lock file.
        """
        if not _is_same_file(self.file, self.path):
            folder = self.path.parent
            missing = self.path if folder.is_dir() else folder
            raise LockLost(f"{missing} was removed or replaced during the run")


@contextmanager
def hold_lock(path: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[RunLock]:
    """Hold the lock for a block; `BlockingIOError`: another process does, not just `is_held`."""
    deadline = time.monotonic() + wait_seconds
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            except OSError as error:  # a network file system may not support locks
                error.filename = str(path)
                raise

            if _is_same_file(file, path):  # else it was replaced, and others may lock the new one
                owner = os.getpid()
                try:
                    yield RunLock(path, file)
                finally:  # closing it is not enough if a rule has left a fork that has it, too
                    if os.getpid() == owner:  # a fork that ends does not unlock the run
                        fcntl.flock(file, fcntl.LOCK_UN)
                return


def is_held(path: Path) -> bool:
    """Return whether a process of this machine holds the lock, without writing anything."""
    with suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_same_file(file: TextIO, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
