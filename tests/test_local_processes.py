"""The processes of a run on one machine: their environment, and that all of them end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import wait_for

from pods.launch import local_processes
from pods.launch.local_processes import environment
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
