"""What a sweep decides about its jobs, in this process: what runs again, and what is reported."""

import errno
import os
import sys
from types import SimpleNamespace

import pytest
from compose import composed
from omegaconf import OmegaConf

from hydra_plugins.pods_launchers.launcher import SweepLauncher
from pods.launch import dry_run, local_backend, sweep
from pods.launch.backend import Job, has_work_left, prepare
from pods.launch.devices import DevicePool
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import JobProcess, check_heartbeat
from pods.runs.freeze import freeze
from pods.system import machine
from pods.system.machine import warn_if_busy


def test_a_debug_run_replaces_the_one_before_unless_another_process_holds_it(tmp_path):
    keys = ("arm=pods", "experiment=quickstart", "seed=0", "debug=default", f"runs_dir={tmp_path}")
    config = composed(*keys)
    budget = (config.budget.train_seconds, config.budget.max_steps)
    assert (config.study, config.retry, *budget) == ("debug", "all", None, 2)
    assert config.checkpoint.every_steps == config.rollouts_every_steps == 1
    done, log = freeze(config), freeze(config).folder / "metrics.jsonl"
    log.write_text("{}\n")
    done.set_status(state="failed")
    assert prepare(config).folder == done.folder and log.exists()
    assert has_work_left(done, "all") and not has_work_left(done, "none")
    done.set_status(state="done")
    assert "1 of 1 jobs to run" in "\n".join(dry_run.show([config], [keys])) and log.exists()
    with done.lock():
        prepare(config)
    assert log.exists()
    prepare(config)
    assert not log.exists() and done.config_path.exists() and has_work_left(done, "none")


def test_a_sweeper_such_as_optunas_is_given_the_accuracies(tmp_path, monkeypatch):
    values = iter([0.25, 0.75])
    monkeypatch.setattr(sweep, "run", lambda configs, _: [
        freeze(config).set_status(accuracy=next(values)) for config in configs])  # fmt: skip
    launcher = SweepLauncher()
    launcher.config = OmegaConf.create({"hydra": {"sweep": {"dir": f"{tmp_path}/study"}}})
    monkeypatch.setattr(launcher, "_config", lambda words: composed(*words, f"runs_dir={tmp_path}"))
    results = launcher.launch([["seed=0"], ["seed=1"]], 0)
    assert [result.return_value for result in results] == [0.25, 0.75]


def test_a_start_on_a_busy_machine_or_gpu_warns_in_one_line(monkeypatch, capsys):
    """nvidia-smi prints MiB: 12,288 are 12 GiB; an idle card shows a little for its driver."""

    def said(device, load, **jobs):
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 9.0, 9.0))
        warn_if_busy(device, **jobs)
        return capsys.readouterr().err

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    end = "measured times will not be comparable\n"
    assert said("cpu", 3.6) == f"warning: load average 3.6 on 2 cores: {end}"
    assert said("cpu", 3.6, own_jobs=3) == ""  # 0.6 are others'
    assert said("cpu", 1.0) == ""
    used = [("0", "12288"), ("1", "4"), ("2", "[N/A]")]
    monkeypatch.setattr(machine, "visible_gpus", {"memory.used": used}.__getitem__)
    line = f"warning: 12.0 GiB of GPU 0 are in use by another process: {end}"
    assert said("cuda", 0.0) == line and said("cpu", 0.0) == ""
    assert said("cuda", 0.0, own_jobs=1) == ""  # which may be ours


@pytest.mark.parametrize("limit", ["60", "null"])
def test_a_job_is_killed_if_its_heartbeat_does_not_change_for_91_polls(limit, monkeypatch):
    """It is polled once per second; its own watchdog has 60 s, and 30 s more, to end it."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, how: killed.append(pid))
    status = {"heartbeat": 1.0}
    job = Job(SimpleNamespace(status=lambda: status), composed(f"watchdog_seconds={limit}"))
    running = JobProcess(job, SimpleNamespace(pid=7), ())
    for change in (1.0, 2.0):  # the second comes after 50 missed polls
        status["heartbeat"] = change
        for _ in range(51):
            check_heartbeat(running)
    for _ in range(40):
        check_heartbeat(running)
    assert killed == []
    check_heartbeat(running)
    ends = ([], None) if limit == "null" else ([7], "no heartbeat for 91 s: killed")
    assert (killed, running.kill_reason) == ends


def test_a_job_that_cannot_start_gives_its_devices_back(tmp_path, monkeypatch, capsys):
    """Each job needs all devices; the first finds its disk full."""
    configs = [composed(f"seed={seed}", f"runs_dir={tmp_path}") for seed in (0, 1)]
    jobs = [Job(freeze(config), config) for config in configs]
    ended = SimpleNamespace(pid=7, poll=lambda: 0, wait=lambda: 0, terminate=lambda: None)

    def start(job, devices, forked):
        if job is jobs[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return JobProcess(job, ended, devices)

    monkeypatch.setattr(local_backend, "start_job", start)
    pool = DevicePool(["0"])
    assert local_backend._run_jobs(jobs, pool) is False and pool.taken == []
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("[1/2] not started ") and "No space left on device" in first
    assert second.startswith("[2/2] pending ")
    assert local_backend._run_jobs([], pool) is False  # where all jobs are done


def test_the_time_left_counts_what_running_jobs_have_done(tmp_path, monkeypatch):
    """One of four jobs has ended and one is half done, in 1,000 min; the rest takes 1,667 min."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown, live = [], LiveTable(4)
    monkeypatch.setattr(live, "update", lambda text, refresh: shown.append(text.plain))
    live.began -= 60_000
    words = ("budget.train_seconds=100", "budget.max_steps=4", f"runs_dir={tmp_path}")
    stores = [freeze(composed(*words, f"seed={seed}")) for seed in (0, 1)]
    stores[0].set_status(state="done", step=4)
    stores[1].set_status(state="running", step=2, train_seconds=10.0, host="elsewhere")
    live.show(stores)
    said = "1 of 4 ended, 1 running, 2 waiting, 16 h 40 min; about 27 h 46 min left"
    assert shown[0].endswith(said)


def test_a_run_that_another_process_has_started_is_left_to_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local_backend, "start_job", lambda *_, **__: pytest.fail("it was started"))
    config = composed(f"runs_dir={tmp_path}")
    store = freeze(config)
    with store.lock():
        store.set_status(state="running")
        local_backend._run_jobs([Job(store, config)], DevicePool(["0"]))
    assert "by another process" in capsys.readouterr().out
