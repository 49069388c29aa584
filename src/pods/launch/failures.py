"""Classify the error that ended a job: the user's, the machine's or the run's own."""

import sys

from pods.engines.base import EngineFailed
from pods.runs.files import Altered
from pods.runs.freeze import Changed
from pods.runs.history import clocks
from pods.runs.store import RunStore
from pods.system.errors import (
    AGAIN,
    FAILED,
    FIX_AND_RESUME,
    RESUME,
    as_short_text,
    as_text,
    gpu_failure,
    is_machine_error,
    print_error,
    print_traceback,
)
from pods.system.signals import PeerLost

REMOVE = "only a new run can make it again: `pods clean --state failed` removes this one"


def classify(error: BaseException, started: bool, store: RunStore) -> tuple[str, int, str]:
    """Print an error, and return the run's state, the exit code and the error as short text.

    The machine causes some errors, such as a full disk; the user has to fix others before a run has
    `started`, by when policy, engine and data are loaded; all others are the run's own.
    """
    text = short_text(error)
    if isinstance(error, Altered) and not error.recoverable:
        print_error(f"{error}; {REMOVE}")
        return "failed", FAILED, text
    if not store.folder.is_dir() and not isinstance(error, Altered):
        error = Altered(f"{store.folder} was removed while the run was going on")
    if isinstance(error, PeerLost | Altered):
        print_error(f"{error}; {RESUME}")
        return "preempted", AGAIN, text
    if is_machine_error(error, store.folder):
        text = gpu_failure(error) or text
        print_error(as_text(error) if isinstance(error, OSError) else text, FIX_AND_RESUME)
        return "preempted", AGAIN, text
    if not started and isinstance(error, ValueError | OSError | ImportError):
        print_error(as_text(error))
        return "preempted" if clocks(store) else "pending", FAILED, text
    print_traceback(error)
    if started and isinstance(error, EngineFailed):
        print(RESUME, file=sys.stderr)
        return "preempted", AGAIN, text
    return "failed", FAILED, text


def short_text(error: BaseException) -> str:
    """Return an error as one line for status.json or a report."""
    if isinstance(error, Changed):
        changes = "; ".join(error.changes)
        hint = "retry=changed on the run's command allows it and marks the run"
        return f"changed since the run began: {changes}; {hint}"
    return as_short_text(error)
