"""Devices: each belongs to one job at a time, and is idle only if the next job does not fit."""

import json
import os
import stat
import sys
from itertools import pairwise

import pytest
from compose import composed
from hypothesis import given
from hypothesis import strategies as st

from pods.config.parse import ConfigError
from pods.launch import devices, dry_run, sweep
from pods.launch.devices import DevicePool, device_pool, max_concurrent
from pods.launch.local_backend import local_backend

NVIDIA_SMI = """#!{python}
import sys
facts = "40000, 49140" if "memory" in sys.argv[1] else "Stand-in"
for i in range({gpus}):
    print(f"{{i}}, {{facts}}")
"""
# In place of a job, from Python's start: note devices and times, and end in state done
JOB = """
import json, os, sys, time
if "pods.launch.job" in sys.orig_argv:
    began, folder = time.monotonic(), sys.orig_argv[-2]
    seed = int(folder.split("/seed")[1].split("-")[0])
    time.sleep(0.1 * (1 + (seed * 7 % 5) / 5))
    with open("notes", "a") as notes:
        notes.write(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], began, time.monotonic(), seed])
                    + "\\n")
    with open(folder + "/status.json", "w") as status:
        json.dump({"state": "done", "accuracy": 0.0}, status)
    os._exit(0)
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that sets the number of GPUs; it returns one that reads the jobs' notes."""

    def notes():
        lines = (tmp_path / "notes").read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda note: note[1])

    def make(gpus):
        listing = tmp_path / "bin" / "nvidia-smi"
        listing.parent.mkdir(exist_ok=True)
        listing.write_text(NVIDIA_SMI.format(python=sys.executable, gpus=gpus))
        listing.chmod(listing.stat().st_mode | stat.S_IXUSR)
        return notes

    (tmp_path / "sitecustomize.py").write_text(JOB)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return make


def test_jobs_on_one_two_and_four_gpus_share_a_machine_in_order(machine, capfd):
    notes, wants = machine(4), (1, 4, 2, 1, 1, 4, 2, 2)
    words = ("hardware=l40s", "tracking=none", "prompts_per_step=4")
    configs = [
        composed(*words, f"seed={seed}", f"hardware.processes={wanted}")
        for seed, wanted in enumerate(wants)
    ]
    sweep.run(configs, local_backend(configs))
    assert "8 jobs, 0 already done, 3 at a time" in capfd.readouterr().out  # 1 + 1 + 1, and then 2
    noted = notes()
    used = {seed: len(devices.split(",")) for devices, _, _, seed in noted}
    assert used == dict(enumerate(wants))
    for device in "0123":
        jobs = [(began, ended) for used, began, ended, _ in noted if device in used]
        assert all(ended <= began for (_, ended), (began, _) in pairwise(jobs))
    began = {seed: at for _, at, _, seed in noted}
    ended = {seed: at for _, _, at, seed in noted}
    assert began[1] >= ended[0] and began[2] >= ended[1]  # no small job has passed the large one
    assert began[5] >= max(ended[s] for s in (2, 3, 4)) and began[6] >= ended[5]


def test_a_run_that_needs_more_gpus_than_there_are_is_refused(run_py, machine, tmp_path):
    machine(4)
    words = ("hardware=h100x8", "engine=transformers", "tracking=none", "prompts_per_step=8")
    said = "hardware.processes=8: needs one GPU per process; this machine has 4 GPUs"
    for way in ((), ("-m", "seed=0,1")):
        result = run_py(*way, *words)
        assert result.returncode == 2
        assert result.stderr.strip() == f"error: {said}"
        assert not list((tmp_path / "runs").rglob("config.yaml"))
    hour = ("dry_run=true", "budget.train_seconds=3600")
    lines = list(dry_run.show([composed(*words, *hour)], [words]))
    assert f"missing: {said}" in lines and lines[-1] == "dry run: no job was started"
    assert "1 of 1 jobs to run, 1 at a time: at least 1 h 00 min, 8.0 GPU-hours, " in lines[1]
    words = ("experiment=gsm8k_l40s", "dry_run=true", "update.lr=1")
    lines = list(dry_run.show([composed(*words)], [words]))
    assert lines[0].endswith("unknown") and "GPU-hours, disk unknown, " in lines[1]
    assert "differs from experiment=gsm8k_l40s in: update.lr=1.0" in lines


def test_only_visible_gpus_are_used(machine, monkeypatch):
    machine(8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    pair = composed("hardware=l40s", "hardware.processes=2", "dry_run=true")
    assert device_pool([pair]).take(2) == ("5", "6")
    assert max_concurrent(device_pool([pair]), [pair] * 9) == 1
    four = composed("hardware=l40s", "hardware.processes=4", "nm.groups=2", "dry_run=true")
    with pytest.raises(ConfigError, match="this machine has 3 GPUs"):
        local_backend([pair, four])


def test_a_run_that_needs_a_gpu_is_refused_if_none_is_visible(machine, monkeypatch):
    machine(8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for processes in (1, 2):
        config = composed("hardware=l40s", f"hardware.processes={processes}", "dry_run=true")
        with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES is empty"):
            local_backend([config])
    assert local_backend([composed()]).at_once >= 1


@pytest.mark.parametrize(("words", "at_once"), [
    ((), 8), (("hardware.threads=3",), 2), (("hardware.processes=2",), 4),
    (("hardware.threads=2", "hardware.processes=3", "nm.groups=2"), 1),
    (("hardware.threads=99",), 1),
    (("hardware.threads=99", "launch.jobs=3"), 3), (("launch.jobs=20",), 20)])  # fmt: skip
def test_cores_go_to_threads_times_processes_unless_jobs_are_counted(words, at_once, monkeypatch):
    monkeypatch.setattr(devices, "cores", lambda: 8)
    config = composed(*words)
    assert max_concurrent(device_pool([config]), [config] * 50) == at_once


@given(st.integers(1, 6).flatmap(lambda many: st.tuples(
    st.just(many), st.lists(st.tuples(st.integers(1, many), st.integers(1, 4)), max_size=12),
    st.none() | st.integers(1, 4))))  # fmt: skip
def test_a_device_is_idle_only_if_the_next_job_does_not_fit(case):
    """Check the rule at every tick, for any machine and any jobs (devices, ticks)."""
    many, jobs, at_once = case
    pool = DevicePool([str(i) for i in range(many)], at_once)
    waiting, running, order = [*jobs], [], []
    while waiting or running:
        while waiting and (taken := pool.take(waiting[0][0])) is not None:
            assert len(taken) == waiting[0][0]
            running.append([taken, waiting[0][1]])
            order.append(waiting.pop(0))
        held = [device for taken, _ in running for device in taken]
        assert len(held) == len(set(held))
        if waiting:
            full = at_once is not None and len(running) == at_once
            assert full or waiting[0][0] > many - len(held)
        for active in running:
            active[1] -= 1
        for active in [a for a in running if a[1] == 0]:
            running.remove(active)
            pool.taken.remove(active[0])
    assert order == jobs
