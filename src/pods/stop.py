"""Stopping on request: signals set a flag; the run looks at it where it can stop without loss."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(BaseException):
    """The run was asked to stop; what it had committed is safe.

    Not an `Exception`, so that no library that tries things out takes it for a failed try.
    """


class Stop:
    """Whether the process has been asked to end, and a count of its signs of life."""

    requested = False
    signs = 0
    """Grows as long as the main thread gets on; the watchdog looks at it."""
    _at_once = False

    def check(self) -> None:
        """Abandon what is going on, if asked to; called only where nothing is half-changed.

        Raises:
            Preempted: a signal has come.
        """
        self.signs += 1
        if self.requested:
            raise Preempted

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within the block a signal ends it there and then: nothing is lost, as while loading."""
        self.check()
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False
        self.check()

    def catch(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; all after the first change nothing."""
        if self.requested:
            return
        self.requested = True
        os.write(2, b"stopping at the next safe point\n")  # print may not be entered twice
        if self._at_once:
            raise Preempted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within the block, the first signal sets the flag of the `Stop`; more change nothing."""
    stop = Stop()
    before = {number: signal.signal(number, stop.catch) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
