"""Lock a run folder with `flock`, which the operating system releases when the process dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pods.runs.files import Altered
from pods.system.errors import AGAIN

WAIT_SECONDS = 0.3  # `is_held` also holds the lock, for a moment
_held: set[TextIO] = set()
"""Locked files of this process. A fork closes them: otherwise it would hold the run, too."""


def _release_in_fork() -> None:
    while _held:
        _held.pop().close()


os.register_at_fork(after_in_child=_release_in_fork)


@dataclass(frozen=True)
class RunLock:
    """A run's lock, held by this process."""

    path: Path
    file: TextIO
    owner: int
    """Number of the process that took the lock. A fork of it shares the open file, not the run."""

    def check_held(self) -> None:
        """Check before each write that this process is still the only one that works on the run.

        A fork of the process, which a user's rule may create, ends here. `Altered` is raised if the
        lock file was removed or replaced, so that another process may hold a new one.
        """
        if os.getpid() != self.owner:
            os.write(2, b"a fork of the run's process must not continue the run: it ends here\n")
            os._exit(AGAIN)
        if not _is_same_file(self.file, self.path):
            missing = self.path if self.path.parent.is_dir() else self.path.parent
            raise Altered(f"{missing} was removed or replaced during the run")


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
                time.sleep(WAIT_SECONDS / 10)
                continue
            except OSError as error:  # a network file system may not support locks
                error.filename = str(path)
                raise
            if _is_same_file(file, path):  # else it was replaced, and others may lock the new one
                _held.add(file)
                try:
                    yield RunLock(path, file, os.getpid())
                finally:
                    _held.discard(file)
                return


def is_held(path: Path) -> bool:
    """Say whether a process of this machine holds the lock, without writing anything."""
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
