"""What a sweep decides about its jobs and devices: what runs again, where, and what is said."""

import errno
import json
import os
import stat
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import hydra
import pytest
from compose import composed
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from hydra_plugins.pods_launchers.launcher import SweepLauncher
from pods.config.checks import validate
from pods.config.compose import plain
from pods.config.parse import ConfigError
from pods.config.schema import CONF
from pods.launch import devices, dry_run, local_backend, subprocesses, sweep
from pods.launch.backend import Backend, Job, has_work_left, prepare
from pods.launch.devices import DevicePool, device_pool, max_concurrent
from pods.launch.live_table import LiveTable
from pods.launch.subprocesses import JobProcess, check_heartbeat, record_end, start_job
from pods.launch.sweep import SweepFailed
from pods.runs.attempts import new_attempt
from pods.runs.freeze import freeze
from pods.system import machine
from pods.system.errors import AGAIN, FAILED
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
    assert has_work_left(done, config)
    assert not has_work_left(done, replace(config, retry="none"))
    done.set_status(state="done", step=2)
    assert "1 of 1 jobs to run" in "\n".join(dry_run.show([config])) and log.exists()
    with done.lock():
        prepare(config)
    assert log.exists()
    prepare(config)
    assert not log.exists() and done.config_path.exists() and has_work_left(done, config)


def test_a_sweeper_such_as_optunas_is_given_the_accuracies(tmp_path, monkeypatch):
    values = iter([0.25, 0.75])
    monkeypatch.setattr(sweep, "run", lambda configs, _: [
        freeze(config).set_status(accuracy=next(values)) for config in configs])  # fmt: skip
    launcher = SweepLauncher()
    launcher.config = OmegaConf.create({"hydra": {"sweep": {"dir": f"{tmp_path}/study"}}})
    monkeypatch.setattr(launcher, "_config", lambda words: composed(*words, f"runs_dir={tmp_path}"))
    results = launcher.launch([["seed=0"], ["seed=1"]], 0)
    assert [result.return_value for result in results] == [0.25, 0.75]


@pytest.mark.parametrize("words", [
    ("arm=grpo", "seed=1", "nm=n32_m16"), ("seed=2", "arm=grpo_ga", "nm.n=8"), ("debug=default",),
    ("update.lr=3e-7", "update.betas=[0.5,0.6]", "model.lora={r: 8, alpha: 9}"), ("++seed=4",),
    ("study=other", "rollouts_every_steps='${nm.n}'", "engine.lag=1", "budget.train_seconds=null",
     "budget.max_steps=9"),
    ("task=gsm8k", "reproduction=faithful", "model=qwen2_5_3b"), ("nm.n=48", "nm={n: 32, m: 8}"),
])  # fmt: skip
def test_a_job_of_a_sweep_has_the_config_that_hydra_composes(words):
    """Jobs share what their choices of options give; each has its own values."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", [], RunMode.MULTIRUN)
        launcher = SweepLauncher()
        context = HydraContext(config_loader=loader, callbacks=Callbacks())
        launcher.setup(hydra_context=context, task_function=lambda _: None, config=master)
        words = (*words, "dry_run=true")
        composed = loader.load_sweep_config(master, list(words))
        expected = validate(plain(composed, words, composed.hydra.runtime))
        assert launcher._config(words) == launcher._config(words) == expected


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


PREEMPTED = {"state": "preempted"}
BROKE = {"state": "failed", "error": "ValueError: x"}
NEVER_BEGAN = {"state": "pending", "error": "the job ended before the run began", "exit_code": 1}
LOST = {"state": "lost", "error": "killed by SIGKILL"}


@pytest.mark.parametrize(("ends", "stopped", "code", "said"), [
    ([PREEMPTED], False, AGAIN, ["preempted"]),
    ([LOST], False, AGAIN, ["killed by SIGKILL"]),
    ([BROKE, PREEMPTED], False, FAILED, ["ValueError: x", "preempted"]),
    ([PREEMPTED, BROKE], False, FAILED, ["preempted", "ValueError: x"]),
    ([NEVER_BEGAN], False, FAILED, ["ended before the run began"]),
    ([PREEMPTED, LOST], True, AGAIN, ["2 jobs 1 preempted, 1 lost; the same command resumes"]),
    ([BROKE, PREEMPTED], True, AGAIN, ["ValueError: x", "2 jobs 1 failed, 1 preempted; the"]),
])  # fmt: skip
def test_how_a_sweep_ends_by_the_ends_of_its_jobs(ends, stopped, code, said, tmp_path):
    """A stop is temporary, whatever failed before; a job that could not begin is not."""

    def run(jobs):
        for job, end in zip(jobs, ends, strict=True):
            job.store.set_status(**end)
        return stopped

    words = ("budget.max_steps=1", f"runs_dir={tmp_path}")
    configs = [composed(*words, f"seed={seed}") for seed in range(len(ends))]
    with pytest.raises(SweepFailed) as failed:
        sweep.run(configs, Backend(at_once=1, run=run), figure=False)
    lines = str(failed.value).splitlines()
    assert failed.value.code == code and len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True)), lines


def test_a_sweep_says_each_reason_once_with_its_runs_and_one_console(tmp_path):
    """Of twelve jobs ten fail alike; of 24 that fail each by itself ten are shown."""

    def run(jobs, errors):
        for job, error in zip(jobs, errors, strict=True):
            (new_attempt(job.store) / "console.log").write_text(f"trace of {job.config.seed}\n")
            job.store.set_status(state="failed", error=error, exit_code=FAILED)
        return False

    def said(study, errors):
        words = ("budget.max_steps=1", f"runs_dir={tmp_path}", f"study={study}")
        configs = [composed(*words, f"seed={seed}") for seed in range(len(errors))]
        backend = Backend(at_once=1, run=partial(run, errors=errors))
        with pytest.raises(SweepFailed) as failed:
            sweep.run(configs, backend, figure=False)
        return str(failed.value).splitlines()

    name = "max_variance 64->16"
    other, *lines = said("alike", ["TypeError: y", *["ValueError: x"] * 10, "TypeError: y"])
    assert other == f"failed: {name}      seed 0: TypeError: y"
    assert lines[0] == "    trace of 0" and lines[1].endswith("attempts/001/console.log)")
    assert lines[2] == f"    1 more for the same reason: {name} seed 11"
    assert lines[3] == f"failed: {name}      seed 1: ValueError: x"
    assert lines[4] == "    trace of 1" and len(lines) == 7
    eight = ", ".join(f"{name} seed {seed}" for seed in range(2, 10))
    assert lines[6] == f"    9 more for the same reason: {eight}, and 1 more"

    lines = said("apart", [f"ValueError: {seed}" for seed in range(24)])
    assert len(lines) == 10 * 3 + 1
    assert lines[-1] == "and 14 more reasons; `pods status` lists all runs"


BEGAN = "the job ended before the run began"


@pytest.mark.parametrize(("status", "code", "change"), [
    ({"state": "done"}, -9, {}),
    ({"state": "failed", "error": "x"}, FAILED, {}),
    ({"state": "running"}, AGAIN, {"state": "lost", "error": "why"}),
    ({"state": "running"}, None, {"state": "lost", "error": "why"}),
    ({"state": "preempted"}, AGAIN, {}),
    ({"state": "preempted"}, None, {}),
    ({"state": "preempted"}, -9, {"state": "lost", "error": "why"}),
    ({"state": "preempted", "exit_code": AGAIN}, -15, {}),  # by a signal while it exited
    ({"state": "preempted"}, FAILED, {"error": BEGAN, "exit_code": FAILED}),
    ({"state": "pending", "error": "no data", "exit_code": FAILED}, FAILED, {}),
    ({"state": "pending"}, None, {"error": "why"}),
])  # fmt: skip
def test_what_is_recorded_of_a_job_that_ended_without_a_word(status, code, change, tmp_path):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    store.set_status(**status)
    with store.lock():  # of another process, which records it itself
        record_end(store, "why", code)
    for expected in (status, status | change):
        found = store.status()
        del found["heartbeat"]
        assert found == expected
        record_end(store, "why", code)


def test_a_job_that_runs_again_has_no_error_of_an_earlier_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocesses, "fork", lambda *_: SimpleNamespace(pid=7))
    config = composed(f"runs_dir={tmp_path}")
    store = freeze(config)
    store.set_status(step=4, **NEVER_BEGAN)
    start_job(Job(store, config), forked=True)
    status = store.status()
    assert (status["error"], status["exit_code"]) == (None, None)
    assert (status["state"], status["step"]) == ("pending", 4)


def test_as_many_jobs_take_a_gpu_as_are_to_run_at_once():
    pool = DevicePool("0123", jobs=2)
    assert [pool.take(1), pool.take(1), pool.take(1)] == [("0",), ("1",), None]
    pool.taken.remove(("0",))
    assert pool.take(2) == ("0", "2") and pool.take(1) is None


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
        json.dump({"state": "done", "accuracy": 0.0, "train_seconds": 1e9}, status)
    os._exit(0)
"""


@pytest.fixture
def computer(tmp_path, monkeypatch):
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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return make


def test_jobs_on_one_two_and_four_gpus_share_a_machine_in_order(computer, capfd):
    notes, wants = computer(4), (1, 4, 2, 1, 1, 4, 2, 2)
    words = ("hardware=l40s", "tracking=none", "prompts_per_step=4")
    configs = [
        composed(*words, f"seed={seed}", f"hardware.processes={wanted}")
        for seed, wanted in enumerate(wants)
    ]
    sweep.run(configs, local_backend.local_backend(configs))
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


def test_a_run_that_needs_more_gpus_than_there_are_is_refused(run_py, computer, tmp_path):
    computer(4)
    words = ("hardware=h100x8", "engine=transformers", "tracking=none", "prompts_per_step=8")
    said = "hardware.processes=8: needs one GPU per process; this machine has 4 GPUs"
    for way in ((), ("-m", "seed=0,1")):
        result = run_py(*way, *words)
        assert result.returncode == 2
        assert result.stderr.strip() == f"error: {said}"
        assert not list((tmp_path / "runs").rglob("config.yaml"))
    hour = ("dry_run=true", "budget.train_seconds=3600")
    lines = list(dry_run.show([composed(*words, *hour)]))
    assert f"missing: {said}" in lines and lines[-1] == "dry run: no job was started"
    assert (
        "1 of 1 jobs to run, 1 at a time: at least 1 h 00 min of training, 8.0 GPU-hours, "
        in lines[1]
    )
    lines = list(dry_run.show([composed("experiment=gsm8k_l40s", "dry_run=true")]))
    assert lines[0].endswith(" ≥ 8.1 GB") and "GPU-hours, 8.1 GB" in lines[1]  # without the weights
    nobodys = ("model=hub", "model.hub=some/body", "task=gsm8k", "dry_run=true")
    lines = list(dry_run.show([composed(*nobodys)]))
    assert lines[0].endswith("unknown") and ", disk unknown (" in lines[1]


def test_a_dry_run_adds_up_what_is_left(tmp_path):
    """Two at a time: the longest job, of 100 s, and one that has done 20 of its 30 s."""
    words = (f"runs_dir={tmp_path}", "launch.jobs=2")
    budgets = ("budget.train_seconds=100", "budget.train_seconds=30")
    configs = [composed(*words, budget, f"seed={seed}") for seed, budget in enumerate(budgets)]
    freeze(configs[1]).set_status(state="preempted", train_seconds=20.0)
    table, totals, *_ = dry_run.show(configs)
    _, first, second = [" ".join(line.split()) for line in table.splitlines()]
    weights = dry_run.read_sizes(configs[0].model).parameters
    # at 0 and every 3 s, of 4 bytes a weight; 2 keep two more numbers of each
    long, short = (f"{4 * (points + 2 * 2) * weights / 1e6:.1f} MB" for points in (35, 11))
    assert first.endswith(f"pending ≥ 1 min 40 s ≥ {long}"), first
    assert second.endswith(f"preempted ≥ 10 s ≥ {short}"), second
    assert totals.startswith(
        "2 of 2 jobs to run, 2 at a time: at least 1 min 40 s of training, "
    ), totals
    freeze(configs[1]).set_status(state="running", host="elsewhere")
    table, totals, *_ = dry_run.show([configs[1]])
    assert " ".join(table.split()).endswith("running - -") and totals.startswith("0 of 1 jobs ")
    freeze(configs[1]).set_status(state="done", train_seconds=30.0)
    for retry, ends in (("failed", "done - -"), ("all", f"done ≥ 30 s ≥ {short}")):
        table, totals, *_ = dry_run.show([composed(*words, budgets[1], "seed=1", f"retry={retry}")])
        assert " ".join(table.split()).endswith(ends), table
        assert totals.startswith(f"{int(retry == 'all')} of 1 jobs to run, "), totals
    one = composed(*words, "budget.train_seconds=null", "budget.max_steps=7",
                   "checkpoint.every_steps=2", "seed=2")  # fmt: skip
    table, *_ = dry_run.show([one])  # 0, 2, 4, 6 and 7
    assert table.endswith(f"≥ 0 s  ≥ {4 * (5 + 2 * 2) * weights / 1e6:.1f} MB"), table


def test_only_visible_gpus_are_used(computer, monkeypatch):
    computer(8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    pair = composed("hardware=l40s", "hardware.processes=2", "dry_run=true")
    assert device_pool([pair]).take(2) == ("5", "6")
    assert max_concurrent(device_pool([pair]), [pair] * 9) == 1
    four = composed("hardware=l40s", "hardware.processes=4", "nm.groups=2", "dry_run=true")
    with pytest.raises(ConfigError, match="this machine has 3 GPUs"):
        local_backend.local_backend([pair, four])


def test_a_run_that_needs_a_gpu_is_refused_if_none_is_visible(computer, monkeypatch):
    computer(8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for processes in (1, 2):
        config = composed("hardware=l40s", f"hardware.processes={processes}", "dry_run=true")
        with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES is empty"):
            local_backend.local_backend([config])
    assert local_backend.local_backend([composed()]).at_once >= 1


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
