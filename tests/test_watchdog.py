"""A watchdog ends a process that hangs, and says where."""

import os
import signal
import subprocess
import sys
import time

import pytest

CODE = """
import sys, time
from pods.system.signals import Stop
from pods.system.watchdog import watchdog
action, limit = sys.argv[1], float(sys.argv[2])
stop, beats = Stop(), []
def an_engine_that_hangs(seconds):
    time.sleep(seconds)
def report(message):
    print("reported:", message, flush=True)
with watchdog(stop, limit, lambda: beats.append(1), report):
    print("watched", flush=True)
    while action in ("work", "hang") and len(beats) < 12:  # polls; the limit is four
        stop.check()
        time.sleep(0.005)
    for pause in range(4 if action == "pauses" else 0):  # none is over the limit
        time.sleep(0.6 * limit)
        stop.check()
    stop.loading = action.startswith("loads")  # which may take four times as long
    if action in ("hang", "loads", "loads too long"):
        an_engine_that_hangs(2 * limit if action == "loads" else 100)
    if action == "wait":
        sys.stdin.readline()
        stop.check()
print("ended", flush=True)
"""


def watched(action: str, limit: float = 0.5) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, action, str(limit)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "watched\n"
    return process


@pytest.mark.parametrize(("action", "silent"), [("hang", 0.5), ("loads too long", 2)])
def test_a_process_that_hangs_ends_with_all_stacks_and_a_report(action, silent):
    output, errors = (process := watched(action)).communicate(timeout=900)
    assert process.returncode == 75
    assert output == f"reported: no heartbeat for {silent} s: ended by the watchdog\n"
    assert "in an_engine_that_hangs" in errors and "Thread" in errors


@pytest.mark.parametrize("action", ["work", "pauses", "loads"])
def test_a_process_that_makes_progress_is_left_alone(action):
    """It runs for longer than it may be silent."""
    output, errors = (process := watched(action, 1.0)).communicate(timeout=900)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


def test_a_suspended_process_does_not_count_as_one_that_hangs():
    """It is silent for longer than the limit by the clock, but not by polls."""
    process = watched("wait", limit=2.0)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2.2)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.5)  # so that it polls first; four polls would end it
    output, errors = process.communicate("\n", timeout=900)
    assert (process.returncode, output, errors) == (0, "ended\n", "")
