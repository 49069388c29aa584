"""The processes of a run on one machine: who they are, and that all end, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from running import wait_for

from pods.machine import RENDEZVOUS
from pods.torchrun import END_SECONDS, environment

SAYS = """
import os, signal, sys, time
from pathlib import Path

out, rank = Path(sys.argv[1]), os.environ["RANK"]

def asked(number, frame):
    (out / f"asked {rank}").touch()
    if sys.argv[2] != "stubborn":
        sys.exit(0)

signal.signal(signal.SIGTERM, asked)
(out / f"pid {rank}.new").write_text(str(os.getpid()))
(out / f"pid {rank}.new").rename(out / f"pid {rank}")
while len(list(out.glob("pid ?"))) < 3 or sys.argv[2] != "well":
    if rank == "1" and (out / "fail").exists():
        sys.exit(3)
    time.sleep(0.01)
"""
IMPATIENT = """
import sys
from pods import torchrun

torchrun.END_SECONDS = 0.5
sys.exit(torchrun.main(torchrun.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
"""
BETWEEN = """
import subprocess, sys

subprocess.run([sys.executable, "-m", "pods.torchrun", *sys.argv[1:]])
"""


def begin(folder: Path, how: str, *before: str) -> subprocess.Popen[str]:
    """Three processes that say who they are, and the one that waits for them."""
    (folder / "private").mkdir()
    (folder / "says.py").write_text(SAYS)
    words = [str(folder / "private"), "3", str(folder / "says.py"), str(folder), how]
    return subprocess.Popen(
        [sys.executable, *(before or ("-m", "pods.torchrun")), *words],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def at_work(folder: Path) -> list[psutil.Process]:
    wait_for(lambda: len(list(folder.glob("pid ?"))) == 3, 30)
    return [psutil.Process(int((folder / f"pid {i}").read_text())) for i in range(3)]


def ended(folder: Path, *processes: psutil.Process) -> bool:
    _, left = psutil.wait_procs(processes, timeout=END_SECONDS / 2)
    return not left and not (folder / "private").exists()


def test_all_end_well(tmp_path):
    process = begin(tmp_path, "well")
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 0
    assert ended(tmp_path)


@pytest.mark.parametrize(("dies", "how"), [("exits", "code 3"), ("is killed", "SIGKILL")])
def test_one_that_dies_is_named_and_the_others_are_asked_to_end(dies, how, tmp_path):
    process = begin(tmp_path, "on")
    three = at_work(tmp_path)
    if dies == "exits":
        (tmp_path / "fail").touch()
    else:
        three[1].kill()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, f"process 1 of the run ended by {how}\n")
    assert ended(tmp_path, *three)
    assert sorted(path.name for path in tmp_path.glob("asked ?")) == ["asked 0", "asked 2"]


def test_a_signal_ends_all_but_a_clusters_warning_ends_none(tmp_path):
    process = begin(tmp_path, "on")
    three = at_work(tmp_path)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None and not list(tmp_path.glob("asked ?"))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 1
    assert ended(tmp_path, *three)
    assert len(list(tmp_path.glob("asked ?"))) == 3


def test_one_that_does_not_end_when_asked_is_killed(tmp_path):
    process = begin(tmp_path, "stubborn", "-c", IMPATIENT)
    three = at_work(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert ended(tmp_path, *three)
    assert len(list(tmp_path.glob("asked ?"))) == 3


def test_all_end_at_once_with_the_one_that_started_them(tmp_path):
    process = begin(tmp_path, "stubborn", "-c", BETWEEN)
    three = at_work(tmp_path)
    [between] = psutil.Process(process.pid).children()
    process.kill()
    process.communicate(timeout=60)
    assert ended(tmp_path, between, *three)


def test_messages_stay_on_this_machine_unless_the_user_says_where(monkeypatch):
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    found = environment(Path("/private"), 4, 2)
    assert [found[name] for name in names] == (
        ["lo0", "=lo0"] if sys.platform == "darwin" else ["lo", "=lo"]
    )
    who = ("RANK", "LOCAL_RANK", "WORLD_SIZE", RENDEZVOUS)
    assert [found[name] for name in who] == ["2", "2", "4", "/private/store"]
    assert found["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert environment(Path("/private"), 4, 2)["GLOO_SOCKET_IFNAME"] == "eth1"
