"""Ray: sweeps on a cluster of two cores that the test starts on this machine."""

import json
import os
import signal

import needs
import pytest
from compose import composed
from running import SHORT, run_folder, science_of, start, steps_made, wait_for

from pods.runs.files import read_lines
from pods.runs.store import RunStore

RAY = ("-m", "launch=ray", "hydra.launcher.ray.init.num_cpus=2")
ONCE = """
import os, signal, sys
from pathlib import Path
def rule(group, m, rng):
    if Path('faults').exists() and 'seed1-' in ' '.join(sys.argv):
        Path('faults').unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if 'seed2-' in ' '.join(sys.argv):
        raise RuntimeError('a rule of mine is broken')
    return range(m)
"""


@pytest.fixture(autouse=True)
def ray():
    needs.module("ray")


def folders(tmp_path):
    return sorted((tmp_path / "runs").glob("*/*/*/seed*"), key=lambda folder: folder.name)


def test_a_job_asks_for_the_gpus_and_cores_of_its_processes():
    from pods.launch.ray_backend import resources

    three = composed("hardware.threads=2", "hardware.processes=3", "nm.groups=2")
    assert resources(three) == {"num_cpus": 6, "num_gpus": 0}
    config = composed("hardware=h100x8", "engine=transformers", "nm.groups=4", "dry_run=true")
    assert resources(config) == {"num_cpus": 64, "num_gpus": 8}


@pytest.mark.slow
def test_a_job_too_large_for_this_machine_and_an_unreachable_cluster_are_refused(run_py, tmp_path):
    result = run_py(*RAY, "seed=0,1", "hardware.processes=3", "nm.groups=2", *SHORT)
    assert result.returncode == 2
    said = "error: hardware.processes=3: a job needs 3 CPUs; this machine has 2"
    assert result.stderr.strip().splitlines()[-1] == said
    result = run_py("-m", "launch=ray", "hydra.launcher.ray.init.address=auto", "seed=0", *SHORT)
    assert result.returncode == 2
    assert "error: hydra.launcher.ray.init.address=auto: Could not find" in result.stderr
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.slow
def test_four_jobs_run_two_at_a_time_and_end_in_a_figure(run_py, tmp_path):
    result = run_py(*RAY, "sampler=max_variance,random", "seed=0,1", *SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 jobs, 0 already done, 2 at a time" in result.stdout
    assert "4 of 4 jobs done" in result.stdout and "figure:" in result.stdout
    intervals = []
    for folder in folders(tmp_path):
        began = (folder / "attempts" / "001" / "environment.json").stat().st_mtime
        intervals.append((began, (folder / "status.json").stat().st_mtime, folder.name))
    at_once = [sum(b <= began <= e for b, e, _ in intervals) for began, _, _ in intervals]
    assert max(at_once) == 2 and len(intervals) == 4
    assert {name[4] for _, _, name in sorted(intervals)[:2]} == {"0"}  # seed by seed
    again = run_py(*RAY, "sampler=max_variance,random", "seed=0,1", *SHORT)
    assert again.returncode == 0 and "4 already done" in again.stdout


@pytest.mark.slow
def test_a_stopped_sweep_commits_and_the_same_command_resumes(run_py, tmp_path, slowed):
    sweep = (*RAY, "seed=0,1,2", *slowed)
    process = start(tmp_path, *sweep)
    wait_for(lambda: sum((f / "metrics.jsonl").exists() for f in folders(tmp_path)) == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 75, output
    states = [RunStore(folder).status()["state"] for folder in folders(tmp_path)]
    assert states == ["preempted", "preempted", "pending"]
    for folder in folders(tmp_path)[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(json.loads((folder / "status.json").read_text())["pid"], 0)
    (tmp_path / "slow").unlink()
    result = run_py(*sweep)
    assert result.returncode == 0 and "3 of 3 jobs done" in result.stdout, result.stderr
    assert [len(list((f / "attempts").iterdir())) for f in folders(tmp_path)] == [2, 2, 1]
    assert all(len(read_lines(f / "metrics.jsonl")) == 20 for f in folders(tmp_path))


@pytest.mark.slow
def test_a_job_that_dies_is_retried_and_one_that_fails_is_not(run_py, tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(ONCE)
    (tmp_path / "faults").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result = run_py(*RAY, "seed=0,1,2", "sampler.rule=my_rules:rule", *SHORT)
    assert result.returncode == 1
    assert "2 of 3 jobs done" in result.stdout
    assert "RuntimeError: a rule of mine is broken" in result.stderr
    said = result.stdout + result.stderr
    assert "retries remaining" not in said and "BlockingIOError" not in said
    assert [len(list((f / "attempts").iterdir())) for f in folders(tmp_path)] == [1, 2, 1]


@pytest.fixture
def machines():
    """A cluster of three machines of a core each, which soon notices that one is gone."""
    from ray.cluster_utils import Cluster

    noticing = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300,
                "health_check_timeout_ms": 10_000, "health_check_failure_threshold": 2}  # fmt: skip
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": noticing}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster, [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.shutdown()


@pytest.mark.slow
def test_a_run_on_two_machines_is_stopped_and_outlives_one_and_ends_in_the_bytes_of_one_machine(
    slowed, machines, run_py, tmp_path
):
    cluster, others = machines
    words = (*slowed, "engine.lag=1")
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "slow").rename(there / "slow")
    spread = ("-m", "launch=ray", "hardware.processes=2", *words,
              f"hydra.launcher.ray.init.address={cluster.address}")  # fmt: skip
    process = start(there, *spread)
    wait_for(lambda: [*there.rglob("checkpoints/*2")])
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 75, output
    assert RunStore(run_folder(there)).status()["state"] == "preempted"  # it has committed
    process, before = start(there, *spread), steps_made(there)
    wait_for(lambda: steps_made(there) > before + 2)
    for machine in others:  # of three, two were in use
        cluster.remove_node(machine, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    (there / "slow").unlink()
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    assert run_py(*words, "hardware.processes=2").returncode == 0
    folder, alone = run_folder(there), run_folder(tmp_path)
    assert science_of(folder) == science_of(alone)
    attempts = sorted((folder / "attempts").iterdir())
    assert len(attempts) >= 3 and all((each / "console.1.log").exists() for each in attempts)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("hardware.processes=2",)])
def test_a_file_in_the_working_folder_replaces_no_library_in_a_worker(words, tmp_path):
    """A rule of one's own in that folder is found nevertheless."""
    canary = tmp_path / "canary"
    for name in ("numpy", "yaml", "torch", "msgspec", "random", "statistics"):
        text = f"open({str(canary)!r}, 'a').write('{name} ')\nraise ImportError('mine')\n"
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "my_rules.py").write_text("def rule(group, m, rng):\n    return range(m)\n")
    own = ("seed=0", "sampler.rule=my_rules:rule", *words, *SHORT, "budget.max_steps=1")
    process = start(tmp_path, *RAY, *own)
    output, _ = process.communicate(timeout=900)
    assert not canary.exists(), canary.read_text()
    assert process.returncode == 0, output
