"""A thread that notices when a run no longer gets on: it says where it hangs, and ends it."""

import faulthandler
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pods.stop import Stop

POLL_SECONDS = 5.0
LOADING_FACTOR = 4  # a model may come from a hub, and gives no sign of life while it does
LAST_WORD_SECONDS = 5.0


@contextmanager
def watchdog(
    stop: Stop,
    limit: float | None,
    alive: Callable[[], None],
    hung: Callable[[str], None],
    exit_code: int,
) -> Iterator[None]:
    """Watch the main thread from another one while the block runs.

    Silence is counted in polls and not by a clock, so that a process that was suspended as a whole
    is not taken for one that hangs.

    Args:
        stop: counts the main thread's signs of life.
        limit: seconds of silence after which the process ends; longer while it loads; None: never.
        alive: called at every poll that found a sign of life, or the process still loading.
        hung: told what happened, before the process ends; it may itself hang.
        exit_code: of the process that hung.
    """
    ended = threading.Event()
    poll = POLL_SECONDS if limit is None else min(POLL_SECONDS, limit / 4)

    def watch() -> None:
        seen, silent = stop.signs, 0.0
        while not ended.wait(poll):
            silent = silent + poll if stop.signs == seen else 0.0
            if stop.loading or stop.signs != seen:
                with suppress(OSError):  # a full disk does not end the watch
                    alive()
            seen = stop.signs
            if limit is not None and silent >= limit * (LOADING_FACTOR if stop.loading else 1):
                _end(hung, silent, exit_code)

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LAST_WORD_SECONDS)


def _end(hung: Callable[[str], None], silent: float, exit_code: int) -> None:
    message = f"no sign of life for {silent:g} s: ended by the watchdog"
    with suppress(OSError):  # by number: the stream may be locked by the thread that hangs
        os.write(2, f"{message}; where every thread is:\n".encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
    last_word = threading.Thread(target=hung, args=(message,), daemon=True)
    last_word.start()  # a disk that hangs must not keep the process
    last_word.join(LAST_WORD_SECONDS)
    os._exit(exit_code)
