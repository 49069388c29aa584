"""A run whose job is gone: on a cluster its lock may outlive it, and its last word be missing."""

import time

from pods.process import POLL_SECONDS
from pods.runs.store import RunStore

LEASE_SECONDS = 120.0
"""For which a job may still commit, or a shared disk keep the lock of a machine that died."""


def is_free(store: RunStore) -> bool:
    """Wait until nobody holds the run; say whether that came to be."""
    until = time.monotonic() + LEASE_SECONDS
    while store.is_held():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def note_end(store: RunStore, lost: str, not_begun: str) -> None:
    """Say what became of a run whose job has ended, and that could not say it itself."""
    state = store.status()["state"]
    if state == "running" and not store.is_held():
        store.set_status(state="lost", error=lost)
    elif state == "pending":
        store.set_status(error=not_begun)
