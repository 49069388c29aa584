"""Stop on request: a signal sets a flag, and the run checks it where it can stop without loss.

While a run loads, nothing can be lost, and the signal raises at once, but not within an import: an
exception that passes through a C++ library while it is being imported can abort the process.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
RETRY_SECONDS = 0.1
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"  # file name of the code that imports modules


class Preempted(BaseException):
    """The run was asked to stop; what it committed is safe. No library's `except` catches it."""


class PeerLost(RuntimeError):
    """Another process of the run has died; what was committed is safe, and the run can resume."""


class Stop:
    """The request to stop this process, and the heartbeats of its threads."""

    requested = False  # the process has been asked to stop
    loading = False  # nothing can be lost yet: a signal stops at once, or after the current import
    waiting = False  # for another process of the run, whose own watchdog ends it if it hangs
    heartbeats = 0  # count that grows while the run makes progress; the watchdog reads it

    def check(self) -> None:
        """Count a heartbeat, and raise `Preempted` if asked to; nothing must be half-changed.

        Only the main thread stops: the one that samples cannot know if an update is half done.
        """
        self.heartbeats += 1
        if self.requested and threading.current_thread() is threading.main_thread():
            raise Preempted

    @contextmanager
    def while_loading(self) -> Iterator[None]:
        """Let a signal stop the block at once, or after the current import, as a run loads."""
        self.check()
        self.loading = True
        try:
            yield
        finally:
            self.loading = False
        self.check()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the first signal; later ones change nothing."""
        if self.requested:
            return
        self.requested = True
        with suppress(OSError):  # the terminal may be gone; print is not reentrant
            os.write(2, b"stopping at the next safe point\n")
        self.raise_if_loading(number, frame)

    def raise_if_loading(self, number: int, frame: FrameType | None) -> None:
        """Raise `Preempted` if asked to while loading; in an import, try again a moment later."""
        if not (self.requested and self.loading):
            return
        while frame is not None and frame.f_code.co_filename != IMPORT_SYSTEM:
            frame = frame.f_back
        if frame is None:
            raise Preempted
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)  # its SIGALRM calls this again


def _reset_in_fork() -> None:
    """Let a signal end a process that a user's rule forks, as Python's `terminate` expects."""
    for number in (*SIGNALS, signal.SIGALRM):
        if isinstance(getattr(signal.getsignal(number), "__self__", None), Stop):
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_reset_in_fork)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Have the block's first signal set the flag of the `Stop`, if `nohup` does not ignore it."""
    stop = Stop()
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, stop.handle) for number in numbers}
    handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, stop.raise_if_loading)
    try:
        yield stop
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def limit_of_work(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block when this process has computed for so long in it.

    The seconds are the processor's, so that a busy machine changes nothing. Only the main thread
    may use this; a single long call of a C library ends first.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
