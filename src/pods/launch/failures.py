"""Classify the error that ended a job: the user's, the machine's or the run's own."""

import sys

from pods.engines.base import EngineFailed
from pods.runs.history import clocks
from pods.runs.lock import LockLost
from pods.runs.records import Damaged
from pods.runs.store import RunStore
from pods.system import errors
from pods.system.signals import PeerLost

BAD_INPUT = (ValueError, OSError, ImportError)


def classify(error: BaseException, started: bool, store: RunStore) -> tuple[str, int, str]:
    """Print an error, and return the run's state, the exit code and the error as short text.

    The machine causes some errors, such as a full disk; the user has to fix others before a run has
    `started`, by when policy, engine and data are loaded; all others are the run's own.
    """
    text = errors.as_short_text(error)
    if not store.folder.is_dir() and not isinstance(error, LockLost):
        error = LockLost(f"{store.folder} was removed while the run was going on")
    if isinstance(error, PeerLost | LockLost):
        errors.print_error(f"{error}; {errors.RESUME}")
        return "preempted", errors.AGAIN, text

    if errors.is_machine_error(error, store.folder):
        text = errors.gpu_failure(error) or text
        line = errors.as_text(error) if isinstance(error, OSError) else text
        errors.print_error(line, errors.FIX_AND_RESUME)
        return "preempted", errors.AGAIN, text

    if isinstance(error, Damaged) or (not started and isinstance(error, BAD_INPUT)):
        errors.print_error(errors.as_text(error))
        state = "preempted" if clocks(store) else "pending"
        return state, errors.FAILED, text

    errors.print_traceback(error)
    if started and isinstance(error, EngineFailed):
        print(errors.RESUME, file=sys.stderr)
        return "preempted", errors.AGAIN, text
    return "failed", errors.FAILED, text
