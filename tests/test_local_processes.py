"""The processes of a run on one machine: their environment, and that all of them end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from running import wait_for

from pods.launch.local_processes import TERMINATE_SECONDS, environment
from pods.system.machine import RENDEZVOUS

SAYS = """
import os, signal, sys, time
from pathlib import Path

out, rank = Path(sys.argv[1]), os.environ["RANK"]

def terminated(number, frame):
    (out / f"terminated {rank}").touch()
    if sys.argv[2] != "ignores SIGTERM":
        sys.exit(0)

signal.signal(signal.SIGTERM, terminated)
(out / f"pid {rank}.new").write_text(str(os.getpid()))
(out / f"pid {rank}.new").rename(out / f"pid {rank}")
while len(list(out.glob("pid ?"))) < 3 or sys.argv[2] != "well":
    if rank == "1" and (out / "fail").exists():
        sys.exit(3)
    time.sleep(0.01)
"""
SHORT_TIMEOUT = """
import sys
from pathlib import Path
from pods.launch import local_processes

local_processes.TERMINATE_SECONDS = 0.5
sys.exit(local_processes.main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
"""
PARENT = """
import subprocess, sys

subprocess.run([sys.executable, "-m", "pods.launch.local_processes", *sys.argv[1:]])
"""


def begin(folder: Path, how: str, *before: str) -> subprocess.Popen[str]:
    """Start three processes that write down their ids, and the launcher that waits for them."""
    (folder / "private").mkdir()
    (folder / "says.py").write_text(SAYS)
    words = [str(folder / "private"), "3", str(folder / "says.py"), str(folder), how]
    return subprocess.Popen(
        [sys.executable, *(before or ("-m", "pods.launch.local_processes")), *words],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def at_work(folder: Path) -> list[psutil.Process]:
    wait_for(lambda: len(list(folder.glob("pid ?"))) == 3, 30)
    return [psutil.Process(int((folder / f"pid {i}").read_text())) for i in range(3)]


def ended(folder: Path, *processes: psutil.Process) -> bool:
    _, left = psutil.wait_procs(processes, timeout=TERMINATE_SECONDS / 2)
    return not left and not (folder / "private").exists()


def test_the_launcher_ends_when_all_processes_have_ended_well(tmp_path):
    process = begin(tmp_path, "well")
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 0
    assert ended(tmp_path)


@pytest.mark.parametrize(("dies", "how"), [("exits", "code 3"), ("is killed", "SIGKILL")])
def test_a_process_that_dies_is_named_and_the_others_are_terminated(dies, how, tmp_path):
    process = begin(tmp_path, "on")
    three = at_work(tmp_path)
    if dies == "exits":
        (tmp_path / "fail").touch()
    else:
        three[1].kill()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, f"process 1 of the run ended by {how}\n")
    assert ended(tmp_path, *three)
    assert sorted(path.name for path in tmp_path.glob("terminated ?")) == [
        "terminated 0",
        "terminated 2",
    ]


def test_a_signal_ends_all_processes_but_a_warning_from_a_cluster_ends_none(tmp_path):
    process = begin(tmp_path, "on")
    three = at_work(tmp_path)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None and not list(tmp_path.glob("terminated ?"))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 1
    assert ended(tmp_path, *three)
    assert len(list(tmp_path.glob("terminated ?"))) == 3


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    process = begin(tmp_path, "ignores SIGTERM", "-c", SHORT_TIMEOUT)
    three = at_work(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert ended(tmp_path, *three)
    assert len(list(tmp_path.glob("terminated ?"))) == 3


def test_all_processes_end_when_the_launchers_parent_is_killed(tmp_path):
    process = begin(tmp_path, "ignores SIGTERM", "-c", PARENT)
    three = at_work(tmp_path)
    [between] = psutil.Process(process.pid).children()
    process.kill()
    process.communicate(timeout=60)
    assert ended(tmp_path, between, *three)


def test_messages_stay_on_this_machine_unless_the_user_chooses_another_interface(monkeypatch):
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    variables = environment(Path("/private"), 4, 2)
    assert [variables[name] for name in names] == (
        ["lo0", "=lo0"] if sys.platform == "darwin" else ["lo", "=lo"]
    )
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", RENDEZVOUS)
    assert [variables[name] for name in ranks] == ["2", "2", "4", "/private/store"]
    assert variables["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert environment(Path("/private"), 4, 2)["GLOO_SOCKET_IFNAME"] == "eth1"
