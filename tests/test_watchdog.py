"""The watchdog ends what hangs, says where, and spares what was only suspended."""

import os
import signal
import subprocess
import sys
import time

CODE = """
import sys, time
from pods.stop import Stop
from pods.watchdog import watchdog
stop, beats = Stop(), []
with watchdog(stop, 1.0, lambda: beats.append(1), lambda why: print("told:", why, flush=True), 75):
    print("watched", flush=True)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        stop.check()
        time.sleep(0.01)
    def an_engine_that_hangs():
        time.sleep(1000)
    if sys.argv[1] == "hang":
        an_engine_that_hangs()
print("beats:", len(beats), flush=True)
"""


def watched(what: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, what],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "watched\n"
    return process


def test_a_hang_ends_with_every_stack_and_a_last_word():
    output, errors = (process := watched("hang")).communicate(timeout=30)
    assert process.returncode == 75
    assert output == "told: no sign of life for 1 s: ended by the watchdog\n"
    assert "in an_engine_that_hangs" in errors and "Thread" in errors


def test_what_gets_on_is_left_alone_and_beats():
    output, errors = (process := watched("work")).communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert int(output.removeprefix("beats: ")) >= 4


def test_a_suspended_process_is_not_one_that_hangs():
    process = watched("work")
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode == 0
