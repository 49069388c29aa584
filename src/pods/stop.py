"""Stopping on request: signals set a flag; the run looks at it where it can stop without loss."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(Exception):
    """The run was asked to stop; what it had committed is safe."""


class Stop:
    """Whether the process has been asked to end."""

    requested = False

    def check(self) -> None:
        """Abandon what is going on, if asked to; called only where nothing is half-changed.

        Raises:
            Preempted: a signal has come.
        """
        if self.requested:
            raise Preempted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within the block, the first signal sets the flag of the `Stop`; more change nothing."""
    stop = Stop()

    def catch(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            os.write(2, b"stopping at the next safe point\n")  # print may not be entered twice
        stop.requested = True

    before = {number: signal.signal(number, catch) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
