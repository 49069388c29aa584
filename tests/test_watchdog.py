"""The watchdog ends what hangs, says where, and spares what was only suspended."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from compose import composed

from pods.process import Running, end_if_silent

CODE = """
import sys, time
from pods.stop import Stop
from pods.watchdog import watchdog
what, limit = sys.argv[1], float(sys.argv[2])
stop, beats = Stop(), []
def an_engine_that_hangs():
    time.sleep(1000)
def tell(why):
    print("told:", why, flush=True)
with watchdog(stop, limit, lambda: beats.append(1), tell, 75):
    print("watched", flush=True)
    while what != "wait" and len(beats) < 12:  # polls, of which four are the limit
        stop.check()
        time.sleep(0.005)
    if what == "hang":
        an_engine_that_hangs()
    if what == "wait":
        sys.stdin.readline()
        stop.check()
print("ended", flush=True)
"""


def watched(what: str, limit: float = 0.5) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, what, str(limit)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "watched\n"
    return process


def test_a_hang_ends_with_every_stack_and_a_last_word():
    output, errors = (process := watched("hang")).communicate(timeout=60)
    assert process.returncode == 75
    assert output == "told: no sign of life for 0.5 s: ended by the watchdog\n"
    assert "in an_engine_that_hangs" in errors and "Thread" in errors


def test_what_gets_on_is_left_alone_and_beats():
    """For three times as many polls as it may be silent."""
    output, errors = (process := watched("work")).communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


def test_a_suspended_process_is_not_one_that_hangs():
    """Silent for longer than the limit by the clock, yet not by polls: it was not there to poll."""
    process = watched("wait", limit=2.0)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2.2)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.5)  # so that it polls first; four polls would end it
    output, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


@pytest.mark.parametrize(("limit", "looks"), [("60", 91), ("null", None)])
def test_a_job_is_killed_after_so_many_looks_at_the_same_heartbeat(limit, looks, monkeypatch):
    """A look a second; beside its own watchdog's 60 s it has 30 s to end itself."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, how: killed.append(pid))
    status = {"heartbeat": 1.0}
    active = Running(SimpleNamespace(status=lambda: status), composed(f"watchdog_seconds={limit}"),
                     SimpleNamespace(pid=7), (), 0.0)  # fmt: skip
    for beat in (1.0, 2.0):  # the second ends a silence of 50 looks
        status["heartbeat"] = beat
        for _ in range(51):
            end_if_silent(active)
    for _ in range(40):
        end_if_silent(active)
    assert killed == [] and active.silent == 90
    end_if_silent(active)
    assert killed == ([7] if looks else [])
    assert active.killed == (f"no sign of life for {looks} s: killed" if looks else None)
