"""Sweeps: one process per job, jobs that fail, die or hang, and the output on the screen."""

import json
import os
import pty
import signal
import sys

import psutil
import pytest
from compose import composed
from running import SHORT, busy, note_imports, run_here, start, start_forked, wait_for

from hydra_plugins.pods_launchers import launcher
from pods.config.parse import ConfigError
from pods.launch import dry_run
from pods.runs.files import read_lines
from pods.runs.store import RunStore


def states(tmp_path):
    stores = [RunStore(path.parent) for path in (tmp_path / "runs").rglob("config.yaml")]
    return {store.config().seed: store.status()["state"] for store in stores}


def attempts(tmp_path):
    folders = (tmp_path / "runs").glob("*/*/*/seed*")
    return {int(f.name[4]): len(list((f / "attempts").iterdir())) for f in folders}


def test_jobs_that_end_badly_disturb_no_others_and_run_again(run_py, tmp_path, faulty):
    sweep = ("-m", "seed=1,2,3,6,0", *faulty)
    result = run_py(*sweep)
    assert result.returncode == 1
    assert "2 of 5 jobs done" in result.stdout
    for reason in (
        "seed 1: exit code 9", "seed 2: killed by SIGKILL",
        "seed 3: ValueError: rule rule: RuntimeError: a rule of mine is broken (", "my_rules.py:9)",
    ):  # fmt: skip
        assert reason in result.stderr
    good = dict.fromkeys((0, 6), "done")
    assert states(tmp_path) == {1: "lost", 2: "lost", 3: "failed", **good}
    (tmp_path / "faults").unlink()
    again = run_py(*sweep)  # those that died resume; the failed one needs retry=failed
    assert again.returncode == 1 and "retry=failed" in again.stdout
    assert "seed 3: ValueError" in again.stderr and "seed 1" not in again.stderr
    assert states(tmp_path) == {1: "done", 2: "done", 3: "failed", **good}
    last = run_py(*sweep, "retry=failed")
    assert last.returncode == 0, last.stderr
    assert "4 already done" in last.stdout and "5 of 5 jobs done" in last.stdout
    assert attempts(tmp_path) == {1: 2, 2: 2, 3: 2, **dict.fromkeys(good, 1)}
    figures = tmp_path / "runs" / "default" / "figures"
    assert {p.name for p in figures.iterdir()} == {
        *(f"accuracy_vs_time.{end}" for end in ("png", "pdf", "svg", "csv", "runs.csv", "json")),
        "curves.csv", "runs.csv", "summary.csv"}  # fmt: skip


@pytest.mark.slow
def test_a_job_that_hangs_or_is_suspended_is_ended(run_fresh, tmp_path, faulty, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "try:\n    from pods.launch import subprocesses\n    subprocesses.GRACE_SECONDS = 5.0\n"
        "except ImportError:\n    pass\n"
    )
    result = run_fresh("-m", "seed=4,5,6", *faulty, "watchdog_seconds=8", "launch.jobs=3")
    assert result.returncode == 75
    assert "1 of 3 jobs done" in result.stdout
    assert states(tmp_path) == {4: "preempted", 5: "lost", 6: "done"}
    assert "seed 4: no heartbeat for 8 s: ended by the watchdog" in result.stderr
    [console] = (tmp_path / "runs").rglob("seed4-*/attempts/001/console.log")
    assert "my_rules.py" in console.read_text() and "in rule" in console.read_text()
    assert "seed 5: no heartbeat for" in result.stderr and "killed" in result.stderr


def test_jobs_run_seed_by_seed_what_was_frozen(run_py, tmp_path, monkeypatch):
    """All jobs are frozen before the first one starts; here the first one edits conf/."""
    (tmp_path / "meddler.py").write_text(
        "from pathlib import Path\n"
        "def rule(group, m, rng):\n"
        "    conf = Path('conf/group/later.yaml')\n"
        "    conf.write_text('# @package _global_\\nbudget: {max_steps: 7}\\n')\n"
        "    return range(m)\n"
    )
    (tmp_path / "conf" / "group").mkdir(parents=True)
    later = tmp_path / "conf" / "group" / "later.yaml"
    later.write_text("# @package _global_\nbudget: {max_steps: 2}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result = run_py("-m", "nm.n=16,32", "nm.m=4", "seed=range(2)", "sampler.rule=meddler:rule",
                    "launch.jobs=1", *SHORT[1:], "+group=later",
                    "hydra.searchpath=[file://conf]")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "max_steps: 7" in later.read_text()
    logs = list((tmp_path / "runs").rglob("metrics.jsonl"))
    assert [len(read_lines(path)) for path in logs] == [2] * 4
    ended = [line for line in result.stdout.splitlines() if line.startswith("[")]
    assert [("seed 0" in line, "32->4" in line) for line in ended] == [
        (True, False), (True, True), (False, False), (False, True)]  # fmt: skip
    assert len({json.loads(log.with_name("status.json").read_text())["pid"] for log in logs}) == 4


def test_a_stopped_sweep_leaves_no_process_says_what_is_left_and_resumes(run_py, tmp_path, slowed):
    sweep = ("-m", "seed=0,1,2", *slowed, "launch.jobs=2")
    process = start_forked(tmp_path, *sweep, apart=True)
    wait_for(lambda: busy(tmp_path) == 2)
    statuses = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("status.json")]
    pids = [status["pid"] for status in statuses if "pid" in status]
    os.kill(pids[0], signal.SIGSTOP)  # a suspended job goes on, to stop
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 75, output
    assert "stopping at the next safe point" in output + errors
    said = "stopped: of 3 jobs 2 preempted, 1 pending; the same command resumes"
    assert errors.splitlines()[-1] == said
    assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))
    (tmp_path / "slow").unlink()
    result = run_py(*sweep)
    assert result.returncode == 0 and "3 of 3 jobs done" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "jobs"), [(["seed=0"], 1), (["seed=0,1"], 2)])
def test_jobs_end_in_a_checkpoint_when_their_sweep_is_killed(run_py, tmp_path, slowed, seeds, jobs):
    """A single job is a new process; two jobs are forked by the fork server."""
    sweep = ("-m", *seeds, *slowed)
    process = start(tmp_path, *sweep)
    wait_for(lambda: busy(tmp_path) == jobs)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=900)
    folders = list((tmp_path / "runs").glob("*/*/*/seed*"))
    wait_for(lambda: {RunStore(f).status()["state"] for f in folders} == {"preempted"})
    assert psutil.wait_procs(family, timeout=60)[1] == []
    (tmp_path / "slow").unlink()
    result = run_py(*sweep)
    assert result.returncode == 0, result.stderr
    assert [len(read_lines(folder / "metrics.jsonl")) for folder in folders] == [20] * jobs


def test_a_run_of_another_process_is_left_alone(run_py, run_fresh, tmp_path, monkeypatch):
    process = start_forked(tmp_path, *SHORT, "budget.max_steps=100000")
    wait_for(lambda: busy(tmp_path) == 1)
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    process.send_signal(signal.SIGSTOP)  # so that only the second process could change anything
    try:
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
        imported = note_imports(tmp_path, monkeypatch)
        second = run_fresh(*SHORT, "budget.max_steps=100000")
        assert second.returncode == 75 and "another process runs this" in second.stderr
        assert "hydra" in imported.read_text().split()
        assert not {"torch", "transformers", "pandas"} & set(imported.read_text().split())
        sweep = run_py("-m", "seed=0", *SHORT, "budget.max_steps=100000", "watchdog_seconds=2")
        assert sweep.returncode == 75 and "1 already running" in sweep.stdout
        assert "running: max_variance 64->16" in sweep.stderr
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()} == before
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate()
    assert process.returncode == 75


def test_hydras_own_launcher_can_be_chosen(run_py, tmp_path):
    result = run_py("-m", "hydra/launcher=basic", "seed=0,1", *SHORT)
    assert result.returncode == 0, result.stderr
    assert states(tmp_path) == {0: "done", 1: "done"}


@pytest.mark.parametrize("cluster", ["slurm", "ray"])
def test_a_cluster_without_its_extra_or_its_group_is_named(cluster, monkeypatch):
    package = {"slurm": "submitit", "ray": "ray"}[cluster]
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    remedy = rf"^launch={cluster}: {package} is not installed: pip install 'pods-rl\[{cluster}\]'$"
    with pytest.raises(ConfigError, match=remedy):
        composed(f"launch={cluster}")
    config = composed(f"launch={cluster}", "dry_run=true")
    with pytest.raises(ConfigError, match=f"^launch.on={cluster}: use launch={cluster} instead$"):
        launcher._backend([config], {})


def test_a_terminal_shows_a_live_table(tmp_path):
    """The table is redrawn on a pseudo-terminal; the lines of ended jobs stay."""
    master, slave = pty.openpty()
    process = start(tmp_path, "-m", "seed=0", *SHORT, stdout=slave, stderr=slave)
    os.close(slave)
    printable = b""
    while process.poll() is None or printable[-1:] == b"":
        try:
            printable += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait(900) == 0
    text = printable.decode()
    assert "train / budget" in text and "0 of 1 ended, 1 running, 0 waiting" in text
    assert "[1/1] done" in text


def test_a_dry_run_lists_jobs_and_what_is_missing(run_py, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_here(*SHORT)
    before = set(tmp_path.rglob("*"))
    result = run_py("seed=0,1", "--config-dir", ".", "--debug", *SHORT, "-m", "dry_run=true")
    assert result.returncode == 0, result.stderr
    header, done, pending, total, model, evaluations, memory, last = result.stdout.splitlines()
    assert header.split() == ["arm", "n→m", "seed", "id", "state", "time", "disk"]
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    assert done.split()[:6] == ["max_variance", "64→16", "0", folder.name[6:], "done", "-"]
    assert "pending" in pending and "≥" in pending
    assert total.startswith("1 of 2 jobs to run, 2 at a time: ") and total.endswith("B free)")
    assert model.startswith("model: tiny, ") and "132,608 parameters" in model
    places = "at step 0, every 2 steps and at the end of a run"
    answers = "each of 32 answers (16 questions × 2)"
    assert evaluations.startswith(f"evaluations: {places}, {answers}; not in the time above: ")
    assert memory.startswith("memory: at most 495.8") and " MB in each process (" in memory
    assert memory.endswith(" for each of 2 processes")
    assert last == "dry run: no job was started"
    result = run_py("task=gsm8k", "task.path=nowhere", "model=smollm2_135m", "hardware=l40s",
                    "model.path=not/there", "dry_run=true")  # fmt: skip
    assert result.returncode == 0, result.stderr
    missing = [line for line in result.stdout.splitlines() if line.startswith("missing: ")]
    assert [line.split("=")[0] for line in missing] == [
        "missing: task.path", "missing: model.path", "missing: hardware.device"]  # fmt: skip
    assert set(tmp_path.rglob("*")) == before
    assert run_py("-m", "seed=0,1", *SHORT, "dry_run=true", "runs_dir=other").returncode == 0
    assert run_py("-m", "seed=0,1", *SHORT, "nm.m=99", "runs_dir=other").returncode == 2
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [(), ("-m", "seed=0,1")], ids=["run", "sweep"])
@pytest.mark.parametrize(("keys", "said"), [
    (("task.path=rows.jsonl",), "refused: task.path=rows.jsonl: "),
    (("task.path=rows.jsonl", "task.malformed=drop", "sampler.rule=late:rule"),
     "refused: rule rule: "),
    (("task.path=rows.jsonl", "task.malformed=drop", "task.reward=late:reward"),
     "refused: task.reward=late:reward: "),
])  # fmt: skip
def test_a_dry_run_refuses_what_the_run_refuses(words, keys, said, run_py, tmp_path):
    rows = [{"question": f"1+{n}?", "answer": f"{n + 1}"} for n in range(20)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines, '{"question": 1}']))
    (tmp_path / "late.py").write_text(
        "def rule(group, m, rng):\n    return group.lenghts\n"
        "def reward(completion, answer, problem):\n    return completion.nothing\n"
    )
    words = (*words, *keys, "task=jsonl", "model=smollm2_135m")
    dry = run_py(*words, "dry_run=true")
    [line] = [line for line in dry.stdout.splitlines() if line.startswith("refused: ")]
    refused = run_py(*words)
    assert refused.returncode == 2 and dry.returncode == 0
    assert line == refused.stderr.strip().replace("error: ", "refused: ") and said in line, line


def test_a_dry_run_counts_distinct_jobs_and_creates_no_folder(run_py, tmp_path, monkeypatch):
    """Every arm with n = m is the same run, whatever its rule, and a repeated seed is one seed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    before = set(tmp_path.rglob("*"))
    result = run_py("-m", "seed=0,0,1", "runs_dir=new/place", "dry_run=true")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[2] for line in lines[1:3]] == ["0", "1"]
    assert lines[3].startswith("2 of 2 jobs to run, 1 repeated, ")
    arms = run_py("-m", "arm=grpo", "nm=n64_m16,n32_m16,n16_m16", "runs_dir=empty", "dry_run=true")
    assert "1 of 1 jobs to run, 2 repeated, 1 at a time: at least 30 s of training, " in arms.stdout
    assert run_py("runs_dir=new/place", "dry_run=true").returncode == 0
    assert set(tmp_path.rglob("*")) == before


def test_a_dry_run_without_data_counts_distinct_jobs_too():
    words = ("task=gsm8k", "task.path=nowhere", "model=qwen2_5_3b", "hardware=l40s", "dry_run=true")
    pairs = (
        ("arm=grpo", "nm=n64_m16"),
        ("arm=grpo", "nm=n16_m16"),
        ("arm=pods", "nm=n64_m16"),
        ("arm=pods", "nm=n16_m16"),
    )  # with n = m it is grpo's run
    configs = [composed(*words, *pair) for pair in pairs]
    assert "2 of 2 jobs to run, 2 repeated, " in "\n".join(dry_run.show(configs))
