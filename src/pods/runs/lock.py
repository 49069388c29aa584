"""A lock on a run folder that dies with its owner: flock, held while a file is open."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 0.3  # `is_held` holds it too, for a moment


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock for the length of the block.

    Raises:
        BlockingIOError: another process holds it, for longer than it takes to look.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(PATIENCE_SECONDS / 10)
        yield


def is_held(path: Path) -> bool:
    """Say whether some process on this machine holds the lock; nothing is written."""
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
