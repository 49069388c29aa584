"""Classify the error that ended a job: the user's, the machine's or the run's own."""

import sys
import traceback

from pods.engines.base import EngineFailed
from pods.runs.files import Altered
from pods.runs.freeze import Changed
from pods.runs.history import clocks
from pods.runs.store import RunStore
from pods.system.console import printable
from pods.system.errors import (
    AGAIN,
    FAILED,
    FIX_AND_RESUME,
    RESUME,
    as_short_text,
    gpu_failure,
    is_machine_error,
    print_error,
)
from pods.system.signals import PeerLost


def classify(error: BaseException, started: bool, store: RunStore) -> tuple[str, int, str]:
    """Print an error, and return the run's state, the exit code and the error as short text.

    The user has to fix some errors, such as missing weights; the machine causes others, such as a
    full disk; all others are the run's own.

    Args:
        error: that ended the run.
        started: whether policy, engine and data had been loaded.
        store: of the run.
    """
    text = short_text(error)
    if not started and isinstance(error, ValueError):
        print_error(str(error))
        return "preempted" if clocks(store) else "pending", FAILED, text
    if isinstance(error, Altered) and not error.recoverable:
        print(
            f"error: {printable(str(error))}; only a new run can make it again: `pods clean "
            "--state failed` removes this one",
            file=sys.stderr,
        )
        return "failed", FAILED, text
    if not store.folder.is_dir() and not isinstance(error, Altered):
        error = Altered(f"{store.folder} was removed while the run was going on")
    if isinstance(error, PeerLost | Altered):
        print_error(f"{error}; {RESUME}")
        return "preempted", AGAIN, text
    failure = gpu_failure(error)
    if started and isinstance(error, EngineFailed) and failure is None:
        _print_traceback(error)
        print(RESUME, file=sys.stderr)
        return "preempted", AGAIN, text
    if is_machine_error(error, store.folder):
        print_error(failure or text, FIX_AND_RESUME)
        return "preempted", AGAIN, failure or text
    _print_traceback(error)
    return "failed", FAILED, text


def _print_traceback(error: BaseException) -> None:
    """Print where an error came from, with control characters as text."""
    print(printable("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def short_text(error: BaseException) -> str:
    """Return an error as one line for status.json or a report."""
    if isinstance(error, Changed):
        changes = "; ".join(error.changes)
        hint = "allow_changed=true on the run's command allows it and marks the run"
        return f"changed since the run began: {changes}; {hint}"
    return as_short_text(error)
