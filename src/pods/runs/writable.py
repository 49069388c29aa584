"""Whether runs can be written where their config wants them, and the keys to name if not."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRIED = 2**16  # bytes, more than any file of a run at its start


@contextmanager
def named_if_unwritable(runs_dir: str, study: str) -> Iterator[None]:
    """Note in an error of the disk which keys have chosen the folder."""
    try:
        yield
    except OSError as error:
        error.add_note(f"runs_dir={runs_dir}, study={study}: must be folders that can be written")
        raise


def check_writable(runs_dir: str, study: str) -> None:
    """Raise an OSError that names the keys if no run can be written; leave nothing behind."""
    folder = Path(runs_dir, study)
    with named_if_unwritable(runs_dir, study):
        folder.exists()  # raises if the system cannot look: a name is too long, a parent locked
        parent = existing_parent(folder)
        try:
            with tempfile.TemporaryFile(dir=parent) as file:
                file.write(bytes(TRIED))
        except OSError as error:
            error.filename = str(parent)
            raise


def existing_parent(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists already."""
    path = folder.absolute()
    while not os.path.exists(path):  # unlike Path.exists, False of what cannot be looked at
        path = path.parent
    return path
