"""The watchdog ends a process that hangs, prints where, and spares one that was suspended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from compose import composed

from pods.launch.backend import Job
from pods.launch.subprocesses import Heartbeat, JobProcess, check_heartbeat

CODE = """
import sys, time
from pods.system.signals import Stop
from pods.system.watchdog import watchdog
action, limit = sys.argv[1], float(sys.argv[2])
stop, beats = Stop(), []
def an_engine_that_hangs():
    time.sleep(1000)
def report(message):
    print("reported:", message, flush=True)
with watchdog(stop, limit, lambda: beats.append(1), report, 75):
    print("watched", flush=True)
    while action != "wait" and len(beats) < 12:  # polls; the limit is four
        stop.check()
        time.sleep(0.005)
    if action == "hang":
        an_engine_that_hangs()
    if action == "wait":
        sys.stdin.readline()
        stop.check()
print("ended", flush=True)
"""


def watched(action: str, limit: float = 0.5) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, action, str(limit)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "watched\n"
    return process


def test_a_process_that_hangs_ends_with_all_stacks_and_a_report():
    output, errors = (process := watched("hang")).communicate(timeout=60)
    assert process.returncode == 75
    assert output == "reported: no heartbeat for 0.5 s: ended by the watchdog\n"
    assert "in an_engine_that_hangs" in errors and "Thread" in errors


def test_a_process_that_makes_progress_is_left_alone():
    """It runs for three times as many polls as it may be silent."""
    output, errors = (process := watched("work")).communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


def test_a_suspended_process_does_not_count_as_one_that_hangs():
    """It is silent for longer than the limit by the clock, but not by polls."""
    process = watched("wait", limit=2.0)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2.2)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.5)  # so that it polls first; four polls would end it
    output, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


@pytest.mark.parametrize("limit", ["60", "null"])
def test_a_job_is_killed_if_its_heartbeat_does_not_change_for_91_polls(limit, monkeypatch):
    """It is polled once per second; its own watchdog has 60 s, and 30 s more, to end it."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, how: killed.append(pid))
    status = {"heartbeat": 1.0}
    store = SimpleNamespace(status=lambda: status)
    job = Job(store, composed(f"watchdog_seconds={limit}"))
    process, heartbeat = SimpleNamespace(pid=7), Heartbeat(store, poll_seconds=1.0)
    running = JobProcess(job, process, (), Path(), 0.0, heartbeat)
    for change in (1.0, 2.0):  # the second comes after 50 missed polls
        status["heartbeat"] = change
        for _ in range(51):
            check_heartbeat(running)
    for _ in range(40):
        check_heartbeat(running)
    assert killed == []
    check_heartbeat(running)
    if limit == "null":
        assert killed == [] and running.kill_reason is None
    else:
        assert killed == [7] and running.kill_reason == "no heartbeat for 91 s: killed"
