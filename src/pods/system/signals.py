"""Stop on request: a signal sets a flag, and the run checks it where it can stop without loss."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(BaseException):
    """The run was asked to stop; what it had committed is safe.

    Not an `Exception`, so that no library mistakes it for an attempt that failed.
    """


class PeerLost(RuntimeError):
    """Another process of the run has died; what was committed is safe, and the run can resume."""


class Stop:
    """The request to stop this process, and the heartbeats of its main thread."""

    requested = False
    """The process has been asked to stop."""
    loading = False
    """Libraries or weights load, which takes long: the watchdog waits longer for a heartbeat."""
    interruptible = False
    """A signal stops the process immediately, because nothing can be lost yet."""
    heartbeats = 0
    """Count that grows while the main thread makes progress; the watchdog reads it."""

    def check(self) -> None:
        """Count a heartbeat, and stop if asked to; called only where nothing is half-changed.

        Raises:
            Preempted: the process was asked to stop.
        """
        self.heartbeats += 1
        if self.requested:
            raise Preempted

    @contextmanager
    def while_loading(self, interruptible: bool = True) -> Iterator[None]:
        """Let the watchdog wait longer for the block, and a signal stop it immediately.

        Args:
            interruptible: False lets a signal stop the process only after the block. A C++ library
                can abort the process if an exception is raised while it is being imported.
        """
        self.check()
        self.loading, self.interruptible = True, interruptible
        try:
            yield
        finally:
            self.loading = self.interruptible = False
        self.check()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the first signal; later ones change nothing."""
        if self.requested:
            return
        self.requested = True
        with suppress(OSError):  # the terminal may be gone; print is not reentrant
            os.write(2, b"stopping at the next safe point\n")
        if self.interruptible:
            raise Preempted


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Have the first signal within the block set the flag of the `Stop`.

    A signal that was ignored before stays ignored, as `nohup` intends.
    """
    stop = Stop()
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
