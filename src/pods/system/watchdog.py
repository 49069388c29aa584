"""A thread that ends a process whose main thread hangs, and prints where it hangs."""

import faulthandler
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pods.system.errors import AGAIN
from pods.system.signals import Stop

LONGEST_POLL = 5.0  # seconds
LOADING_FACTOR = 4  # a download from a hub gives no heartbeat
END_SECONDS = 5.0


@contextmanager
def watchdog(
    stop: Stop,
    limit: float | None,
    on_heartbeat: Callable[[], None],
    on_hang: Callable[[str], None],
) -> Iterator[None]:
    """Watch the main thread from another thread while the block runs.

    After `limit` seconds without a heartbeat, more while it loads, `on_hang` is called with a
    message, and the process ends with AGAIN; None: never. The seconds are counted in polls,
    not by a clock, so that a process that was suspended does not count as one that hangs. A poll
    at which it waits for another process of the run counts as one with a heartbeat.
    `on_heartbeat` is called at each poll with a new heartbeat, and while the process loads.
    """
    ended = threading.Event()
    poll = LONGEST_POLL if limit is None else min(LONGEST_POLL, limit / 4)

    def watch() -> None:
        last_heartbeat = stop.heartbeats
        silent = 0.0  # seconds without a new heartbeat
        while not ended.wait(poll):
            is_new = stop.heartbeats != last_heartbeat or stop.waiting
            last_heartbeat = stop.heartbeats
            silent = 0.0 if is_new else silent + poll
            if is_new or stop.loading:
                with suppress(OSError):  # a full disk does not end the watch
                    on_heartbeat()

            factor = LOADING_FACTOR if stop.loading else 1
            if limit is not None and silent >= limit * factor:
                _end(on_hang, silent)

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_SECONDS)


def _end(on_hang: Callable[[str], None], silent: float) -> None:
    message = f"no heartbeat for {silent:g} s: ended by the watchdog"
    with suppress(OSError):  # by number: the hanging thread may hold the stream's lock
        os.write(2, f"{message}; the stack of every thread:\n".encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
    reporter = threading.Thread(target=on_hang, args=(message,), daemon=True)
    reporter.start()  # in a thread, so that a hanging disk cannot keep the process alive
    reporter.join(END_SECONDS)
    os._exit(AGAIN)
