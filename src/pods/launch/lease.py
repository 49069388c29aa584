"""Waiting for a run whose last job is only just gone: on a cluster its lock may outlive it."""

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
