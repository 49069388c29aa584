"""Stopping on request: signals set a flag; the run looks at it where it can stop without loss."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

GO_ON = "the same command goes on from the newest checkpoint"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(BaseException):
    """The run was asked to stop; what it had committed is safe.

    Not an `Exception`, so that no library that tries things out takes it for a failed try.
    """


class Gone(RuntimeError):
    """Another process of the run has died; what was committed is safe, and the run can go on."""


class Stop:
    """Whether the process has been asked to end, and a count of its signs of life."""

    requested = False
    loading = False
    """A signal ends what is going on there and then: nothing can be lost yet."""
    signs = 0
    """Grows as long as the main thread gets on; the watchdog looks at it."""

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
        """Within the block a signal ends it there and then, as while libraries and weights load."""
        self.check()
        self.loading = True
        try:
            yield
        finally:
            self.loading = False
        self.check()

    def catch(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; all after the first change nothing."""
        if self.requested:
            return
        self.requested = True
        with suppress(OSError):  # a terminal that went away; print may not be entered twice
            os.write(2, b"stopping at the next safe point\n")
        if self.loading:
            raise Preempted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within the block, the first signal sets the flag of the `Stop`; more change nothing.

    One that is ignored stays so: `nohup` is meant.
    """
    stop = Stop()
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.catch) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
