"""Slurm: the parameters of its jobs, and sweeps through stand-ins of its commands."""

import os
import signal
import subprocess
import threading
from itertools import product

import needs
import pytest
import stand_in_slurm
from compose import composed
from running import SHORT, run_folder, science_of, start, steps_made, wait_for

from hydra_plugins.pods_launchers.launcher import SlurmConf
from pods.cli.main import main
from pods.launch import subprocesses
from pods.launch.subprocesses import record_end, start_on_cluster
from pods.runs.freeze import freeze
from pods.runs.store import RunStore

SETTINGS = vars(SlurmConf(partition="long", additional_parameters={}))


@pytest.fixture(autouse=True)
def submitit():
    needs.module("submitit")


def parameters(config, settings):
    from pods.launch import slurm_backend  # without the extra this file must still be collected

    return slurm_backend.parameters(config, settings)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Slurm of this machine; its folder."""
    folder = tmp_path / "slurm"
    stand_in_slurm.install(folder, tmp_path / "bin")
    monkeypatch.setenv("SLURM_STAND_IN", str(folder))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


def begin(tmp_path, steps, *words):
    """Start a sweep of one run; return its process and folder once it has made so many steps."""
    process = start(tmp_path, "-m", "launch=slurm", *SHORT, *words)
    wait_for(lambda: steps_made(tmp_path) >= steps)
    return process, run_folder(tmp_path)


@pytest.mark.parametrize(("words", "settings", "minutes", "notice"), [
    ((), {}, 31, 186), (("budget.train_seconds=21600",), {}, 30 + 720, 600),
    (("budget.train_seconds=null", "budget.max_steps=9"), {}, 1440, 600),
    ((), {"timeout_min": 30}, 30, 180), ((), {"timeout_min": 30, "signal_delay_s": 90}, 30, 90),
])  # fmt: skip
def test_the_time_limit_follows_the_clock_and_notice_is_a_tenth(words, settings, minutes, notice):
    chosen = parameters(composed(*words), SETTINGS | settings)
    assert (chosen["timeout_min"], chosen["slurm_signal_delay_s"]) == (minutes, notice)


def test_a_job_asks_for_the_gpus_and_cores_of_its_processes_as_one_task():
    config = composed("hardware=h100x8", "engine=transformers", "launch.jobs=3", "nm.groups=4",
                      "dry_run=true")  # fmt: skip
    chosen = parameters(config, SETTINGS)
    assert (chosen["cpus_per_task"], chosen["gpus_per_node"]) == (64, 8)
    assert (chosen["tasks_per_node"], chosen["slurm_array_parallelism"]) == (1, 3)
    assert chosen["slurm_partition"] == "long"
    assert chosen["slurm_srun_args"] == ["--cpus-per-task=64"]
    given = {**SETTINGS, "gres": "gpu:h100:8", "setup": ["module load cuda"]}
    chosen = parameters(config, given)
    assert "gpus_per_node" not in chosen and chosen["slurm_setup"] == ["module load cuda"]
    assert "gpus_per_node" not in parameters(composed(), SETTINGS)
    chosen = parameters(config, {**SETTINGS, "cpus_per_gpu": 6})
    assert chosen["slurm_cpus_per_gpu"] == 6
    assert not {"cpus_per_task", "slurm_srun_args"} & set(chosen)


def test_a_job_waits_for_a_held_run_and_fails_if_it_stays_held(tmp_path, monkeypatch):
    from pods.launch.slurm_backend import SlurmJob

    store = freeze(composed(f"runs_dir={tmp_path}"))
    store.set_status(state="done", train_seconds=30.0)
    with store.lock():
        monkeypatch.setattr(subprocesses, "STALE_LOCK_SECONDS", 0.1)
        with pytest.raises(BlockingIOError, match="another process runs this"):
            SlurmJob(str(store.folder), str(tmp_path))()
    held = store.lock()
    held.__enter__()
    monkeypatch.setattr(subprocesses, "STALE_LOCK_SECONDS", 20.0)
    threading.Timer(0.2, lambda: held.__exit__(None, None, None)).start()
    assert start_on_cluster(str(store.folder), str(tmp_path)) is None  # it is done meanwhile


def test_a_run_whose_job_has_gone_is_lost_or_says_why_it_never_began(tmp_path):
    store, ends = RunStore(tmp_path), []
    for state in ("running", "pending", "done"):
        store.set_status(state=state, error=None)
        if state == "running":
            with store.lock():  # another process still commits
                record_end(store, "it died")
                assert store.status()["state"] == "running"
        record_end(store, "it died")
        ends.append((store.status()["state"], store.status()["error"]))
    assert ends == [("lost", "it died"), ("pending", "it died"), ("done", None)]


def test_the_launch_is_refused_without_slurm_and_for_a_single_run(run_py, tmp_path):
    result = run_py("-m", "launch=slurm", "seed=0,1", *SHORT)
    assert result.returncode == 2 and result.stderr.startswith("error: launch=slurm: needs srun")
    result = run_py("launch=slurm", *SHORT)
    assert result.returncode == 2 and "-m makes this run one" in result.stderr
    assert not list(tmp_path.rglob("config.yaml"))


def test_a_refusal_of_sbatch_is_printed_as_one_line(run_py, tmp_path, cluster):
    refusal = "#!/bin/sh\necho sbatch: error: no such partition >&2\nexit 1\n"
    (tmp_path / "bin" / "sbatch").write_text(refusal)
    result = run_py("-m", "launch=slurm", "seed=0,1", "hydra.launcher.partition=x", *SHORT)
    assert result.returncode == 2
    message = "error: launch=slurm: sbatch: error: no such partition"
    last = result.stderr.strip().splitlines()[-1]  # submitit prints sbatch's output before
    assert last == message


@pytest.mark.slow
def test_a_sweep_is_an_array_whose_script_has_the_derived_parameters(run_py, tmp_path, cluster):
    sweep = ("-m", "launch=slurm", "sampler=max_variance,random", "seed=0,1", "launch.jobs=2",
             "hardware.threads=1", "hydra.launcher.partition=long", "hydra.launcher.mem_gb=8",
             "study=mine", *SHORT)  # fmt: skip
    result = run_py(*sweep)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 jobs, 0 already done, 2 at a time" in result.stdout
    assert "4 of 4 jobs done" in result.stdout and "figure:" in result.stdout
    logs = tmp_path / "runs" / "mine" / ".submitit" / "%A_%a" / "%A_%a_0_log.out"
    [script] = cluster.glob("script.*")
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("# ")]
    settings = (
        "array=0-3%2", "cpus-per-task=1", "job-name=mine", "mem=8GB", "nodes=1",
        "ntasks-per-node=1", "open-mode=append", f"output={logs}", "partition=long", "requeue",
        "signal=USR2@186", "time=31", "wckey=submitit")  # fmt: skip
    assert [line for line in lines if not line.startswith(("export", "srun"))] == [
        "#!/bin/bash", *(f"#SBATCH --{setting}" for setting in settings)]  # fmt: skip
    [srun] = [line for line in lines if line.startswith("srun")]
    assert "--cpus-per-task=1" in srun and "-m submitit.core._submit" in srun
    begun = [line.split()[0] for line in (cluster / "steps").read_text().splitlines()]
    assert {*begun} == {f"100_{i}" for i in range(4)} and {*begun[:2]} == {"100_0", "100_1"}
    for index, (seed, rule) in enumerate(product((0, 1), ("max_v", "random"))):
        [folder] = (tmp_path / "runs").glob(f"*/*/{rule}*/seed{seed}-*")
        assert f"Slurm job 100_{index}" in (folder / "queued.json").read_text()  # seed-major
    again = run_py(*sweep)
    assert "4 already done" in again.stdout and again.returncode == 0
    assert len(list(cluster.glob("script.*"))) == 1


@pytest.mark.slow
def test_a_preempted_job_is_requeued(run_py, tmp_path, cluster, capsys, monkeypatch):
    words = ("seed=0", "budget.max_steps=40", "checkpoint.every_steps=10")
    assert run_py(*SHORT, *words, "runs_dir=alone").returncode == 0
    process, folder = begin(tmp_path, 12, *words)
    monkeypatch.chdir(tmp_path)
    assert main(["status", "default"]) == 0
    assert "running" in capsys.readouterr().out
    os.kill(stand_in_slurm.steps(cluster)["100"], signal.SIGUSR2)
    wait_for((cluster / "requeues").exists)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    assert (cluster / "requeues").read_text() == "100\n"
    assert len(list((folder / "attempts").iterdir())) == 2
    [alone] = (tmp_path / "alone").glob("*/*/*/seed0-*")
    assert science_of(folder) == science_of(alone)


@pytest.mark.slow
@pytest.mark.parametrize("submitting", [False, True])
def test_slurm_keeps_a_stopped_sweep(
    submitting, run_py, tmp_path, cluster, capsys, monkeypatch, slowed
):
    sweep = (*slowed, "seed=0,1", "launch.jobs=1")
    monkeypatch.setenv("SBATCH_SECONDS", str(2 * submitting))
    process = start(tmp_path, "-m", "launch=slurm", *sweep)
    wait_for(lambda: [*tmp_path.rglob("sbatch.*" if submitting else "metrics.jsonl")])
    if submitting:
        os.kill(int(next(cluster.glob("sbatch.*")).suffix[1:]), signal.SIGINT)  # as a terminal
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 75
    assert "2 jobs remain in Slurm's queue" in output and "0 of 2 jobs done" in output
    monkeypatch.chdir(tmp_path)
    main(["status", "default"])
    assert "submitted as Slurm job 100_1" in capsys.readouterr().out
    again = run_py("-m", "launch=slurm", *sweep)
    assert again.returncode == 0 and "2 of 2 jobs done" in again.stdout, again.stdout
    assert "submitted" not in again.stdout and (submitting or "1 already running" in again.stdout)
    assert len(list(cluster.glob("script.*"))) == 1
    assert [len(list((run_folder(tmp_path, s) / "attempts").iterdir())) for s in (0, 1)] == [1, 1]


@pytest.mark.slow
def test_jobs_that_die_or_fail_are_named_and_run_again(run_py, tmp_path, cluster, faulty):
    sweep = ("-m", "launch=slurm", "seed=0,2,3", "launch.jobs=2", *faulty)
    result = run_py(*sweep)
    assert result.returncode == 1
    assert "1 of 3 jobs done" in result.stdout
    assert "seed 2: killed by SIGKILL" in result.stderr
    assert "RuntimeError: a rule of mine is broken" in result.stderr
    assert not (cluster / "requeues").exists()
    (tmp_path / "faults").unlink()
    again = run_py(*sweep, "retry=failed")
    assert again.returncode == 0 and "3 of 3 jobs done" in again.stdout, again.stderr
    assert "submitted 2 jobs as 101, 31 min each" in again.stdout


@pytest.mark.slow
def test_a_job_commits_at_sigterm_and_leaves_the_rest_to_slurm(tmp_path, cluster, monkeypatch):
    process, folder = begin(tmp_path, 2, "seed=0", "budget.max_steps=500")
    os.kill(stand_in_slurm.steps(cluster)["100"], signal.SIGTERM)
    wait_for(lambda: RunStore(folder).status()["state"] == "preempted")
    with pytest.raises(subprocess.TimeoutExpired):  # since Slurm requeues no job that ends
        process.communicate(timeout=3)
    os.kill(stand_in_slurm.steps(cluster)["100"], signal.SIGKILL)  # as scancel does at last
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 75 and "preempted" in output
    assert not (cluster / "requeues").exists()
