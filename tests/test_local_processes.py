"""The processes of a run end together, and a watchdog ends one that hangs and says where."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from compose import composed
from running import wait_for

from pods.launch import local_processes
from pods.launch.local_processes import environment
from pods.runs.freeze import freeze
from pods.system.machine import RENDEZVOUS
from pods.system.signals import Stop

SAYS = """
import signal, sys, time
from pathlib import Path

out, rank, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def terminated(number, frame):
    (out / f"terminated {rank}").touch()
    if how != "ignores":
        sys.exit(75)

signal.signal(signal.SIGTERM, terminated)
(out / f"begun {rank}").touch()
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def ranks(tmp_path):
    """Start a process for each word, which says how that one behaves."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*how):
        for rank, word in enumerate(how):
            command = [sys.executable, "-c", SAYS, str(tmp_path), str(rank), word]
            started.append(subprocess.Popen(command))
        wait_for(lambda: len(list(tmp_path.glob("begun ?"))) == len(how), 60)
        return started

    yield start
    for process in started:
        process.kill()


def followed(processes, stopping=False):
    """Watch processes to their end, and return their exit codes."""
    stop = Stop()
    stop.requested = stopping
    local_processes._watch(processes, stop)
    local_processes._end(processes)
    return [process.returncode for process in processes]


def test_a_process_that_dies_is_named_and_the_others_end(ranks, tmp_path, capsys):
    processes = ranks("works", "works", "works")
    processes[1].kill()
    assert followed(processes) == [75, -signal.SIGKILL, -signal.SIGKILL]
    assert capsys.readouterr().err == "process 1 of the run ended: killed by SIGKILL\n"
    assert [path.name for path in tmp_path.glob("terminated ?")] == ["terminated 0"]


@pytest.mark.parametrize(("how", "code"), [("works", 75), ("ignores", -signal.SIGKILL)])
def test_a_stopped_run_ends_at_rank_0(how, code, ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(local_processes, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(local_processes, "TERMINATE_SECONDS", 0.5)
    processes = ranks(how, "works")
    if how == "ignores":  # and a rank that dies, since a run may take its time to stop
        processes[1].kill()
    assert followed(processes, stopping=True) == [code, -signal.SIGKILL]
    assert [path.name for path in tmp_path.glob("terminated ?")] == ["terminated 0"]


LAUNCHER = """
import os, signal, sys
from pathlib import Path
from pods.launch import local_processes
from pods.runs.store import RunStore
program = '''
import time
from pods.system.machine import end_with_parent
time.sleep(1.0)
end_with_parent()
open("lives", "w").close()
time.sleep(60)
'''
store = RunStore(Path(sys.argv[1]))
process = local_processes._start(store, [sys.executable, "-c", program], Path("."), 0)
print(process.pid, flush=True)
if sys.argv[2] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
process.wait()
"""


@pytest.mark.parametrize("how", ["dies", "lives"])
def test_a_process_ends_if_its_launcher_dies_while_it_starts(how, tmp_path):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    command = [sys.executable, "-c", LAUNCHER, store.folder, how]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as launcher:
        process = psutil.Process(int(launcher.stdout.readline()))
        try:
            if how == "dies":
                wait_for(lambda: not process.is_running(), 30)
            else:
                wait_for((tmp_path / "lives").exists, 30)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    assert (tmp_path / "lives").exists() == (how == "lives")


def test_messages_stay_on_this_machine_unless_the_user_chooses_another_interface(monkeypatch):
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    variables = environment(Path("/private"), 4, 2)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    assert [variables[name] for name in names] == [loopback, f"={loopback}"]
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", RENDEZVOUS)
    assert [variables[name] for name in ranks] == ["2", "2", "4", "/private/store"]
    assert variables["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert environment(Path("/private"), 4, 2)["GLOO_SOCKET_IFNAME"] == "eth1"


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
    for pause in range(8 if action == "pauses" else 0):  # none is over the limit
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
    output, errors = (process := watched(action)).communicate(timeout=60)
    assert process.returncode == 75
    assert output == f"reported: no heartbeat for {silent} s: ended by the watchdog\n"
    assert "in an_engine_that_hangs" in errors and "Thread" in errors


@pytest.mark.parametrize("action", ["work", "pauses", "loads"])
def test_a_process_that_makes_progress_is_left_alone(action):
    """It runs for longer than it may be silent."""
    output, errors = (process := watched(action, 1.0)).communicate(timeout=60)
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
