"""Runs that a busy machine slowed down are named, with the reason; others are not accused."""

import json
import os

import pytest
from compose import composed
from omegaconf import OmegaConf
from studies import BASE, write_run

from hydra_plugins.pods_launchers.launcher import SweepLauncher
from pods.analysis.comparison.compare import compare
from pods.analysis.comparison.verdicts import caveats
from pods.analysis.draw import aggregate, summary_lines
from pods.analysis.noise import slow_runs
from pods.analysis.study import load
from pods.launch import sweep
from pods.launch.backend import Backend, Job, Outcome
from pods.launch.dry_run import show
from pods.launch.job import has_work_left
from pods.launch.noisy import restart_noisy
from pods.launch.sweep import SweepFailed, run
from pods.memory.fit import Fit
from pods.runs.freeze import freeze
from pods.runs.store import run_folders
from pods.system import load as machine
from pods.system.load import CpuTimes, cpu_times, machine_load, warn_if_busy

BUSY = {"load_start": 0.4, "load_end": 3.61, "cores": 2, "steal": 0.004, "others": 0.47}
IDLE = {"load_start": 0.1, "load_end": None, "cores": 2, "steal": None, "others": None}
GRPO, PODS = ("sampler.rule=all", "nm.n=16", "nm.m=16"), ("nm.n=64", "nm.m=16")


@pytest.fixture
def write(tmp_path):
    """Write a run of steps that take so many seconds each."""

    def write(seed, seconds, arm=PODS, recorded=None, **more):
        ends = [sum(seconds[:step]) for step in range(len(seconds) + 1)]
        store = write_run(
            tmp_path, [(step, end, 4) for step, end in enumerate(ends)], *arm, f"seed={seed}",
            "checkpoint.every_steps=1", "checkpoint.every_train_seconds=null",
            "budget.train_seconds=null", "budget.max_steps=4", **more,
        )  # fmt: skip
        if recorded is not None:
            (store.folder / "attempts/001/load.json").write_text(json.dumps(recorded))

    return write


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "default"
    return lambda: load(folder, run_folders(folder))


def test_a_run_that_was_made_to_wait_is_named_and_its_quiet_peers_are_not(write, study):
    # 4 steps: 8 s against 15.2 s, 1.9 times; the CPU works 7.84 s in either
    write(0, [2.0, 2.0, 2.0, 2.0], busy=0.98, recorded=IDLE)
    write(1, [2.0, 2.0, 5.6, 5.6], busy=7.84 / 15.2, recorded=BUSY)
    write(2, [2.2, 2.2, 2.2, 2.2], busy=0.9)  # 10 % are no news
    write(0, [1.0, 1.0, 1.0, 1.0], GRPO)  # another series has another time
    write(1, [1.0, 1.0, 1.0, 1.1], GRPO)
    write(2, [1.0, 1.0, 1.0, 1.0], GRPO)
    assert list(slow_runs(study()).values()) == [
        "max_variance 64→16 seed 1: a step took 1.9 times as long as in seed 0; CPU was used for "
        "52 % of the time, there for 98 % (load 3.6 on 2 cores, 47 % of their time used by other "
        "processes)"
    ]


def test_equal_times_say_nothing_and_one_run_has_no_peer(write, study):
    write(0, [2.0, 1.0, 4.0, 2.0])
    assert slow_runs(study()) == {}
    write(1, [2.0, 1.0, 4.0, 2.0])
    write(2, [2.0, 1.0, 4.0, 2.0])
    assert slow_runs(study()) == {}


def test_old_runs_are_judged_by_wall_seconds_alone(write, study):
    write(0, [3.0, 3.0, 3.0, 3.0])
    write(1, [2.0, 2.0, 2.0, 2.0])
    assert list(slow_runs(study()).values()) == [
        "max_variance 64→16 seed 0: a step took 1.5 times as long as in seed 1"
    ]


def test_a_run_that_computed_more_did_not_wait(write, study):
    write(0, [2.0, 2.0, 2.0, 2.0], busy=0.9)
    write(1, [4.0, 4.0, 4.0, 4.0], busy=0.9)
    assert list(slow_runs(study()).values()) == [
        "max_variance 64→16 seed 1: a step took 2.0 times as long as in seed 0; it used 2.0 times "
        "the CPU seconds: more work or slower cores, no waiting"
    ]


def test_longer_completions_may_take_longer_but_not_much_longer(write, study):
    write(0, [2.0, 2.0, 2.0, 2.0])
    write(1, [4.0, 4.0, 4.0, 4.0], tokens=180)  # 2 / 1.8 = 1.11
    write(2, [4.4, 4.4, 4.4, 4.4], tokens=180)  # 2.2 / 1.8 = 1.22
    assert [line.partition(":")[0] for line in slow_runs(study()).values()] == [
        "max_variance 64→16 seed 2"
    ]


def test_one_run_that_is_fast_by_accident_does_not_accuse_seven_others(write, study):
    for seed in range(7):
        write(seed, [2.0, 2.0, 2.0, 2.0])
    write(7, [1.0, 1.0, 1.0, 1.0])
    assert slow_runs(study()) == {}


def test_runs_on_unlike_machines_are_not_held_against_each_other(write, tmp_path, study):
    write(0, [2.0, 2.0, 2.0, 2.0])
    write(1, [4.0, 4.0, 4.0, 4.0])
    [path] = tmp_path.glob("default/*/*/seed1-*/attempts/001/environment.json")
    path.write_text(path.read_text().replace("A CPU", "Another CPU"))
    folder = tmp_path / "default"
    assert slow_runs(load(folder, run_folders(folder), allow_mixed=True)) == {}


def test_the_verbs_say_it(write, tmp_path, study):
    for seed, seconds in enumerate((2.0, 3.0)):
        write(seed, [seconds] * 4)
        write(seed, [1.0] * 4, GRPO)
        write(seed, [1.0] * 4, ("sampler.rule=random", *PODS))
    line = "max_variance 64→16 seed 1: a step took 1.5 times as long as in seed 0"
    folder = tmp_path / "default"
    assert line in summary_lines(*aggregate(folder, run_folders(folder)))
    assert f"Measured times: {line}" in caveats(compare(study(), ["max_variance", "all"]))
    assert not any("Measured" in said for said in caveats(compare(study(), ["random", "all"])))


def test_noisy_runs_are_run_again_from_the_start_and_kept(write, tmp_path, capsys):
    for seed, seconds in enumerate((2.0, 2.0, 4.0)):
        write(seed, [seconds] * 4)
    keys = (f"runs_dir={tmp_path}", *BASE, *PODS, "checkpoint.every_steps=1", "retry=noisy",
            "checkpoint.every_train_seconds=null", "budget.train_seconds=null",
            "budget.max_steps=4")  # fmt: skip
    configs = [composed(*keys, f"seed={seed}") for seed in range(3)]
    [slow] = tmp_path.glob("default/*/*/seed2-*")
    log = (slow / "metrics.jsonl").read_bytes()
    assert "1 of 3 jobs to run" in "\n".join(show(configs))
    asked = []
    backend = Backend(
        1, Fit("", True, True), lambda jobs: asked.extend(jobs) or Outcome(stopped=False)
    )
    with pytest.raises(SweepFailed):  # this backend ends no run
        run(configs, backend)
    assert [job.store.folder for job in asked] == [slow]
    assert not (slow / "metrics.jsonl").exists() and not (slow / "checkpoints").exists()
    kept = tmp_path.joinpath("default", "superseded", *slow.parts[-3:-1], f"{slow.name}-1")
    assert (kept / "metrics.jsonl").read_bytes() == log
    assert len(run_folders(tmp_path / "default")) == 3
    line = "max_variance 64→16 seed 2: a step took 2.0 times as long as in seed 0"
    assert f"again: {line} (kept: {kept})\n" in capsys.readouterr().out
    with pytest.raises(SweepFailed):  # nothing that was done is noisy any more
        run(configs, backend)
    assert [job.store.folder for job in asked] == [slow, slow] and not kept.with_name("-2").exists()


def test_a_debug_run_is_run_again_each_time_in_a_study_of_its_own(write, tmp_path, capsys):
    keys = (
        "arm=pods",
        "experiment=quickstart",
        "seed=0",
        "debug=default",
        f"runs_dir={tmp_path}",
    )
    config = composed(*keys)
    budget = (config.budget.train_seconds, config.budget.max_steps)
    assert (config.study, config.retry, *budget) == ("debug", "all", None, 2)
    assert config.checkpoint.every_steps == config.rollouts_every_steps == 1
    done, new = freeze(config), freeze(composed(*keys, "seed=1"))
    done.set_status(state="done")
    (done.folder / "metrics.jsonl").write_text("{}\n")
    restart_noisy([Job(done, config), Job(new, config)])
    assert not (done.folder / "metrics.jsonl").exists() and has_work_left(done, "all")
    [kept] = tmp_path.glob("debug/superseded/*/*/*/metrics.jsonl")
    assert capsys.readouterr().out.endswith(f"(kept: {kept.parent})\n")
    new.set_status(state="failed")
    assert has_work_left(new, "all") and not has_work_left(new, "noisy")


def test_a_sweeper_such_as_optunas_is_given_the_accuracies(tmp_path, monkeypatch):
    values = iter([0.25, 0.75])
    monkeypatch.setattr(sweep, "run", lambda configs, _: [
        freeze(config).set_status(accuracy=next(values)) for config in configs
    ])  # fmt: skip
    launcher = SweepLauncher()
    launcher.config = OmegaConf.create({"hydra": {"sweep": {"dir": f"{tmp_path}/study"}}})
    monkeypatch.setattr(launcher, "_config", lambda words: composed(*words, f"runs_dir={tmp_path}"))
    results = launcher.launch([["seed=0"], ["seed=1"]], 0)
    assert [result.return_value for result in results] == [0.25, 0.75]


def test_the_load_of_an_attempt_by_hand(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    start = CpuTimes(now=100.0, own=1.0, machine=(50.0, 2.0), load=0.5)
    end = CpuTimes(now=110.0, own=9.0, machine=(70.0, 3.0), load=2.25)
    # 40 core-seconds: 20 used, 8 of them by this process; 1 stolen
    assert machine_load(start, end) == {
        "load_start": 0.5, "load_end": 2.25, "cores": 4, "steal": 0.025, "others": 0.3,
    }  # fmt: skip
    unknown = {"load_end": None, "steal": None, "others": None}
    assert machine_load(start) == {"load_start": 0.5, "cores": 4, **unknown}
    elsewhere = CpuTimes(now=100.0, own=1.0, machine=None, load=0.5), CpuTimes(110.0, 9.0, None, 1)
    assert machine_load(*elsewhere) == {"load_start": 0.5, "cores": 4, **unknown, "load_end": 1}


def test_the_machines_cpu_seconds_are_those_of_the_kernel(monkeypatch, tmp_path):
    # user nice system idle iowait irq softirq steal guest, in ticks
    (tmp_path / "stat").write_text("cpu  700 100 150 9000 77 20 30 50 5 0\ncpu0 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(machine, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert cpu_times().machine == (10.0, 0.5)
    monkeypatch.setattr(machine, "STAT", tmp_path / "none")
    assert cpu_times().machine is None


def test_a_start_on_a_busy_machine_warns_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.6, 0.0, 0.0))
    warn_if_busy("cpu")
    assert capsys.readouterr().err == (
        "warning: load average 3.6 on 2 cores: measured times will not be comparable\n"
    )
    warn_if_busy("cpu", own_jobs=3)  # 0.6 are others'
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 9.0, 9.0))
    warn_if_busy("cpu")
    assert capsys.readouterr().err == ""


def test_a_start_on_a_gpu_that_another_process_uses_warns_in_one_line(monkeypatch, capsys):
    """nvidia-smi prints MiB: 12,288 are 12 GiB; an idle card shows a little for its driver."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    used = [("0", "12288"), ("1", "4"), ("2", "[N/A]")]
    monkeypatch.setattr(machine, "visible_gpus", {"memory.used": used}.__getitem__)
    warn_if_busy("cuda")
    assert capsys.readouterr().err == (
        "warning: 12.0 GiB of GPU 0 are in use by another process: measured times will not be "
        "comparable\n"
    )
    warn_if_busy("cuda", own_jobs=1)  # which may be ours
    warn_if_busy("cpu")
    assert capsys.readouterr().err == ""
