"""A lock on a run folder that dies with its owner: flock, held while a file is open."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pods.runs.files import Altered, own
from pods.trouble import AGAIN

PATIENCE_SECONDS = 0.3  # `is_held` holds it too, for a moment


@dataclass(frozen=True)
class Held:
    """The lock as its owner has it."""

    path: Path
    file: TextIO
    owner: int
    """Number of the process that took it; a fork of that has the open file, but not the run."""

    def check(self) -> None:
        """See, before anything is written, that this process still is the run's only one.

        A copy of the process, such as a rule may fork, ends here: it must never write.

        Raises:
            Altered: the lock was removed or replaced, so that another process may have begun.
        """
        if os.getpid() != self.owner:
            os.write(2, b"a copy of the run's process would go on with the run: it ends here\n")
            os._exit(AGAIN)
        if not is_of(self.file, self.path):
            gone = self.path if self.path.parent.is_dir() else self.path.parent
            raise Altered(f"{gone} was removed or replaced while the run was going on")


@contextmanager
def hold(path: Path) -> Iterator[Held]:
    """Hold the lock for the length of the block.

    Raises:
        BlockingIOError: another process holds it, for longer than it takes to look.
        OSError: it cannot be opened or locked.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file", str(path))
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        with open(path, "a", opener=own) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(PATIENCE_SECONDS / 10)
                continue
            except OSError as error:  # a disk far away may keep no locks
                error.filename = str(path)
                raise
            if is_of(file, path):  # else it was removed since, and another process may have its own
                yield Held(path, file, os.getpid())
                return


def is_of(file: TextIO, path: Path) -> bool:
    """Say whether an open file is what has the name now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def is_held(path: Path) -> bool:
    """Say whether some process on this machine holds the lock; nothing is written."""
    try:
        file = open(path, opener=own)  # noqa: SIM115
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
