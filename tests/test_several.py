"""One run on several processes: the same steps, gradients within rounding, and nothing lost."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil
import pytest
from compose import composed
from fake_loop import loop, steps_of
from hypothesis import given, settings
from hypothesis import strategies as st
from running import (
    BY_HAND,
    ONE_STEP,
    Started,
    note_imports,
    run_folder,
    science_of,
    start,
    start_forked,
    steps,
    steps_made,
    wait_for,
)
from safetensors.torch import load_file

from pods.launch import several
from pods.method.prompt_selection import Uniform
from pods.policy.packing import split_among_processes
from pods.policy.process_group import ProcessGroup
from pods.runs.attempts import environments
from pods.runs.freeze import freeze
from pods.runs.history import newest_checkpoint
from pods.runs.store import OPTIMIZER, RunStore
from pods.runs.tracking.tracker import Tracker
from pods.system.signals import Preempted, Stop
from pods.training.build import build_trainer
from pods.training.clock import TrainClock
from pods.types import Rollout

OFF_POLICY = ("update.epochs=2", "update.minibatches=2", "update.kl_beta=0.1")
WAYS = {
    "all weights, rows of a prompt apart": (3, (), 1e-5),
    "adapters off policy": (2, ("model.tuning=lora", *OFF_POLICY), 1e-5),
    "sharded": (2, ("hardware.shard=true",), 1e-4),
    "sharded off policy over four": (4, ("prompts_per_step=4", "hardware.shard=true", *OFF_POLICY,
                                         "update.activation_checkpointing=true"), 1e-4),
}  # fmt: skip


def difference(one: dict, other: dict) -> float:
    assert one.keys() == other.keys() != set()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize(
    "way", [way if "rows" in way else pytest.param(way, marks=pytest.mark.slow)
            for way in WAYS])  # fmt: skip
def test_processes_together_are_one_process(way, tmp_path):
    processes, words, bound = WAYS[way]
    alone, expected = steps(tmp_path / "alone", 1, *words)
    together, gradients = steps(tmp_path / "together", processes, *words)
    assert len(together) == 5
    for one, other in zip(alone, together, strict=True):
        stats = one.pop("stats"), other.pop("stats")
        np.testing.assert_allclose(*stats, atol=1e-5)
        assert one == other  # prompts, tokens, what was kept, advantages
    assert 0 < difference(expected, gradients) < bound
    assert max(gradient.abs().max().item() for gradient in expected.values()) > 100 * bound
    folder, file = tmp_path / "together", "adapter_model" if "adapters" in way else "model"
    for name in (f"policy/{file}.safetensors", "optimizer.safetensors"):
        assert (folder / name).read_bytes() == (folder / "again" / name).read_bytes()
        state = load_file(folder / name), load_file(tmp_path / "alone" / name)
        assert difference(*state) < bound
    if "adapters" not in way:  # PEFT writes a set in any order
        for name in ("config.json", "generation_config.json"):
            written = [(tmp_path / each / "policy" / name) for each in ("alone", "together")]
            assert written[0].read_text() == written[1].read_text()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), min_size=1, max_size=40),
       st.integers(1, 9))  # fmt: skip
def test_each_process_gets_its_share_of_the_tokens(drawn, parts):
    rollouts = [
        Rollout((7,) * (10 + prompt), (1,) * length, np.zeros(length), "", True)
        for prompt, length in drawn
    ]
    members = list(range(0, len(rollouts), 2))
    dealt = split_among_processes(rollouts, members, parts)
    assert len(dealt) == parts and sorted(i for part in dealt for i in part) == members
    costs = [sum(len(rollouts[i].completion_ids) for i in part) for part in dealt]
    prompts = sum({len(rollouts[i].prompt_ids) for i in members})
    longest = max(len(rollouts[i].completion_ids) + 14 for i in members)
    assert max(costs) <= (sum(costs) + prompts) / parts + longest  # its share and one sequence
    order = [rollouts[i].prompt_ids for part in dealt for i in part]  # a prompt's lie together
    assert sum(a != b for a, b in pairwise(order)) == len(set(order)) - 1


def test_shares_are_all_of_it_in_order():
    for size in (1, 2, 3, 8):
        process_group = ProcessGroup()
        process_group.size = size
        for count in range(20):
            shares = [process_group.share(count) for process_group.rank in range(size)]
            assert [i for share in shares for i in share] == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


RUN = ("budget.train_seconds=null", "budget.max_steps=12", "checkpoint.every_steps=3", "nm.n=16",
       "nm.m=8", "evaluation.questions=8", "evaluation.repeats=2", "rollouts_every_steps=2",
       "tracking=none")  # fmt: skip


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Run to the end; once in some hundred runs a thread of gloo crashes, and the same goes on."""
    folder.mkdir(exist_ok=True)
    process = start_forked(folder, *RUN, *words)
    said, _ = process.communicate()
    if process.returncode == 75 and "killed by SIGSEGV" in said:
        process = start_forked(folder, *RUN, *words)
        said, _ = process.communicate()
    return process.returncode, said


@pytest.fixture
def leaves_nothing(tmp_path_factory, monkeypatch):
    """However a run's processes end, no folder of theirs stays in the temporary one."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    assert [path for name in ("pods-*", "torchelastic_*") for path in temporary.glob(name)] == []


def leader_of(folder: Path) -> int | None:
    """Process id of rank 0, once it is at work."""
    for path in folder.glob("runs/*/*/*/seed*/status.json"):
        return json.loads(path.read_text()).get("pid")
    return None


def begin(folder: Path, *words: str) -> Started:
    """Start a run on two processes, and wait until it has made a step of its own."""
    folder.mkdir(exist_ok=True)
    before, old = steps_made(folder), leader_of(folder)
    process = start_forked(folder, *RUN, *words)
    wait_for(lambda: process.poll() is not None or leader_of(folder) not in (None, old))
    wait_for(lambda: process.poll() is not None or steps_made(folder) != before)
    return process


AHEAD = ("engine.lag=2", "prompts=mopps", "task.train_size=12", "group_filter=resample",
         "group_filter.max_batches=3", "nm.n=4", "nm.m=2")  # fmt: skip


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    words = ("hardware.shard=true", "budget.max_steps=20")
    assert run(tmp_path / "alone", *words)[0] == 0
    lines, _ = science_of(run_folder(tmp_path / "alone"))
    for first, then in ((2, 1), (1, 2)):
        folder = tmp_path / f"{first} to {then}"
        folder.mkdir()
        process = start_forked(folder, *RUN, f"hardware.processes={first}", *words)
        wait_for(lambda: steps_made(folder) >= 4)  # noqa: B023
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate()
        assert process.returncode == 75, said
        made = steps_made(folder)
        code, said = run(folder, f"hardware.processes={then}", *words)
        assert code == 0 and "resuming from step" in said, said
        found, _ = science_of(run_folder(folder))
        assert 4 <= made < len(found) == 20
        for one, other in zip(lines, found, strict=True):
            assert one["kept"] == other["kept"]
            assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
        store = RunStore(run_folder(folder))
        assert [each["processes"] for each in environments(store)] == [first, then]


@pytest.mark.slow
def test_a_larger_budget_trains_two_processes_on_as_if_they_had_never_stopped(tmp_path):
    words = ("hardware.processes=2", "hardware.shard=true", "engine.lag=1")
    assert run(tmp_path / "whole", *words)[0] == 0
    for most, said in ((6, "step      6"), (12, "resuming from step 6"), (9, "is already done")):
        code, output = run(tmp_path / "on", *words, f"budget.max_steps={most}")
        assert code == 0 and said in output, output
    on, whole = (run_folder(tmp_path / name) for name in ("on", "whole"))
    assert science_of(on) == science_of(whole)


def processes_of(process: subprocess.Popen | Started, folder: Path) -> dict[str, psutil.Process]:
    """The processes of a run, by what they are."""
    job = psutil.Process(process.pid)
    ranks = {each.pid: each for each in job.children()}
    leader, [follower, *_] = ranks.pop(leader_of(folder)), ranks.values()
    return {"job": job, "leader": leader, "follower": follower}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [("hardware.shard=true",), AHEAD], ids=["sharded", "lagged"])
def test_a_process_that_dies_ends_the_run_which_goes_on(kind, tmp_path, request):
    """Each process of the run in turn is killed at a random moment; the bytes are the same."""
    times = max(1, request.config.getoption("--kills") // 20)
    words = ("hardware.processes=2", f"budget.max_steps={20 * times}", *kind)
    assert run(tmp_path / "left alone", *words)[0] == 0
    folder, chance, killed = tmp_path / "killed", random.Random(0), 0
    for victim in ("follower", "leader", "job") * times:
        process = begin(folder, *words)
        all_of_them = processes_of(process, folder)
        time.sleep(chance.random() * 0.2)
        all_of_them[victim].kill()
        said, _ = process.communicate()
        left = psutil.wait_procs(all_of_them.values(), timeout=60)[1]
        assert not left, f"{victim} was killed, and {left} went on"
        store = RunStore(run_folder(folder))
        if process.returncode == 75:
            if victim in ("follower", "leader"):
                rank = "[12]" if victim == "follower" else "0"
                assert re.search(f"process {rank} of the run ended: killed by SIGKILL\n", said)
            assert store.status()["state"] == "preempted", said
            assert "run the same command again to resume" in said
        else:
            assert process.returncode == (-signal.SIGKILL if victim == "job" else 0), said
        assert not store.is_held()
        killed += process.returncode != 0
    assert killed >= 2 * times
    code, said = run(folder, *words)
    assert code == 0, said
    found, expected = (science_of(run_folder(tmp_path / name)) for name in ("killed", "left alone"))
    assert found == expected


def test_the_death_of_rank_0_is_recorded_by_the_process_that_started_it(tmp_path, capsys):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    store.set_status(state="running", exit_code=None)
    assert several.end(store, {0: -signal.SIGKILL, 1: 75}) == 75
    said = capsys.readouterr().err
    assert said.startswith("process 0 of the run ended: killed by SIGKILL\nrun the same command")
    assert (store.status()["state"], store.status()["error"]) == (
        "preempted", "a process of the run died")  # fmt: skip
    store.set_status(state="failed", error="process 1: KeyError: 'injected'", exit_code=1)
    assert several.end(store, {0: 1, 1: 1}) == 1 and capsys.readouterr().err == ""
    store.set_status(state="running", exit_code=None)
    with store.lock():  # by another process, for which rank 0 has made way
        assert several.end(store, {0: 75, 1: 75}) == 75 and store.status()["state"] == "running"


@pytest.mark.slow
def test_processes_that_torchrun_starts_by_hand_make_the_same_run(tmp_path, leaves_nothing):
    """As on several machines, where each has its own torchrun."""
    assert run(tmp_path / "ours", "hardware.processes=2")[0] == 0
    (tmp_path / "by hand").mkdir()
    store = freeze(composed(*RUN, f"runs_dir={tmp_path / 'by hand' / 'runs'}"))
    done = subprocess.run(
        [sys.executable, *BY_HAND, "--nproc-per-node=2", f"--log-dir={tmp_path}",
         "--module", "pods.launch.job", str(store.folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert store.status()["state"] == "done"
    assert science_of(store.folder) == science_of(run_folder(tmp_path / "ours"))


@pytest.mark.slow
def test_a_run_opens_no_port_and_a_signal_stops_it_safely(tmp_path, leaves_nothing):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = begin(tmp_path, "hardware.processes=2", "budget.max_steps=1000")
        all_of_them = processes_of(process, tmp_path)
        sockets = [s for each in all_of_them.values() for s in each.net_connections("tcp")]
        places = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
        [place] = run_folder(tmp_path).glob("attempts/*/meeting-*")
        mode = place.stat().st_mode & 0o777
        all_of_them["follower"].send_signal(signal.SIGUSR2)  # as a cluster does, to all there are
        process.send_signal(number)
        said, _ = process.communicate()
        assert process.returncode == 75 and "stopped on request" in said, said
        assert "Traceback" not in said and "of the run ended" not in said
        assert places and all(ip_address(each).is_loopback for each in places) and mode == 0o700
        assert not psutil.wait_procs(all_of_them.values(), timeout=60)[1]
        store = RunStore(run_folder(tmp_path))
        newest, complaints = newest_checkpoint(store, OPTIMIZER)
        assert not complaints and newest is not None
        assert store.clock(newest)["step"] == steps_made(tmp_path)  # nothing is made twice
        assert store.status()["state"] == "preempted"


def test_a_run_of_one_process_loads_nothing_of_several(tmp_path, monkeypatch):
    imported = note_imports(tmp_path, monkeypatch)
    process = start(tmp_path, *ONE_STEP)
    said, _ = process.communicate(timeout=900)
    names = set(imported.read_text().split())
    assert process.returncode == 0 and "pods.training.trainer" in names, said
    assert not {"pods.launch.several", "pods.policy.joined", "torch.distributed.launcher"} & names


def test_another_thread_goes_on_where_the_main_one_is_stopped():
    """It grades a sample beside an update, and cannot know what is half-changed."""
    stop = Stop()
    stop.requested = True
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(stop.check).result() is None and stop.heartbeats == 1
    with pytest.raises(Preempted):
        stop.check()


@pytest.mark.slow
def test_wrong_weights_are_one_line_whoever_finds_them(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    code, said = run(tmp_path, "hardware.processes=2", f"model.path={tmp_path / 'model'}")
    assert (code, said.count("error: "), said.count("Traceback")) == (1, 1, 0), said


OTHER = """
import os, time
if os.environ.get("RANK") == "1":
    from pods.training.workers import {of}
    plain = {of}.{name}
    def other(worker, first, *others):
        {change}
        return plain(worker, first, *others)
    {of}.{name} = other
"""
HANGS = """
import ctypes, os
from pods.method.rules import max_variance

def rule(group, m, rng):
    if os.environ.get("RANK") == "0":
        ctypes.PyDLL(None).sleep(600)  # no Python runs, and no signal is heard
    return max_variance(group, m, rng)
"""


@pytest.mark.slow
def test_an_error_of_a_follower_fails_the_run(tmp_path, monkeypatch, leaves_nothing):
    change = "if others[-1] == 2: raise KeyError('injected')"  # in the second step
    other = OTHER.format(of="Worker", name="update", change=change)
    (tmp_path / "sitecustomize.py").write_text(other)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    code, said = run(tmp_path, "hardware.processes=2")
    assert code == 1 and "KeyError: 'injected'" in said, said
    status = RunStore(run_folder(tmp_path)).status()
    assert (status["state"], status["error"]) == ("failed", "process 1: KeyError: 'injected'")


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "code"), [("worker.engine.check()", 0), ("pass", 75)])
def test_the_watchdog_waits_for_a_process_that_gets_on(sign, code, tmp_path, monkeypatch):
    change = f"for _ in range(180 * (first.n == 16)): time.sleep(0.1); {sign}"  # 18 s, in training
    other = OTHER.format(of="SharedEngine", name="_draw", change=change)
    (tmp_path / "sitecustomize.py").write_text(other)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("hardware.processes=2", "watchdog_seconds=8", "budget.max_steps=1")
    found, said = run(tmp_path, *words)
    assert found == code, said
    assert ("no heartbeat" in said) == (code == 75)


LEAVES = """
import atexit, sys
from pods.system.machine import end_process

class Late:
    def __del__(self, write=sys.stderr.write):
        write("too late")

kept = Late()
atexit.register(print, "at exit")
print("said")
end_process(3)
"""


def test_a_process_leaves_without_the_end_of_python():
    left = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert (left.returncode, left.stdout, left.stderr) == (3, "said\nat exit\n", "")


@pytest.mark.slow
def test_a_job_that_is_killed_leaves_no_process_that_hangs(tmp_path, monkeypatch, leaves_nothing):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("sampler.rule=hangs:rule", "hardware.processes=2", "evaluation.questions=1")
    process = start(tmp_path, *RUN, *words)
    wait_for(lambda: leader_of(tmp_path) is not None)
    wait_for(lambda: list(tmp_path.glob("runs/*/*/*/seed*/evaluations/*")))
    all_of_them = processes_of(process, tmp_path)
    time.sleep(1)  # it is in the first step by now
    process.kill()
    assert not psutil.wait_procs(all_of_them.values(), timeout=60)[1]
    assert not RunStore(run_folder(tmp_path)).is_held()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("hardware.processes=2",), ("-m", "seed=0")],
                         ids=["two processes", "the job of a sweep"])  # fmt: skip
def test_processes_whose_starter_is_killed_while_they_load_end(words, tmp_path, leaves_nothing):
    """Before Linux knows that they end with it: they find that it is gone."""
    process = start(tmp_path, *RUN, "budget.max_steps=100000", *words)
    wait_for(lambda: psutil.Process(process.pid).children(), 120)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=30)
    _, left = psutil.wait_procs(children, timeout=60)
    for each in left:
        each.kill()
    assert not left
    assert not RunStore(run_folder(tmp_path)).is_held()
    assert RunStore(run_folder(tmp_path)).status()["state"] in ("pending", "preempted")


SLOW_COMMIT = """
import os, time
if os.environ.get("RANK") == "0":
    from pods.runs import checkpoint
    plain = checkpoint._seal
    def seal(folder):
        time.sleep(4)
        plain(folder)
    checkpoint._seal = seal
"""


@pytest.mark.slow
def test_further_signals_do_not_cut_a_commit(tmp_path, monkeypatch, leaves_nothing):
    """The launcher waits for its processes, however often it is asked to stop."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_COMMIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    process = begin(tmp_path, "hardware.processes=2", "budget.max_steps=1000",
                    "checkpoint.every_steps=1000")  # fmt: skip
    all_of_them = processes_of(process, tmp_path)
    for _ in range(6):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    assert all(each.is_running() for each in all_of_them.values())
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and "stopped on request" in said, said
    assert "Traceback" not in said and "killed" not in said, said
    store = RunStore(run_folder(tmp_path))
    assert store.status()["state"] == "preempted"
    newest, _ = newest_checkpoint(store, OPTIMIZER)
    assert newest is not None and store.clock(newest)["step"] == steps_made(tmp_path) > 0
    assert not list(store.folder.glob("attempts/*/meeting-*"))


@pytest.mark.parametrize(("recorded", "codes", "code", "error"), [
    ({"state": "done", "exit_code": 0}, {}, 0, None),
    ({"state": "done", "exit_code": 0}, {0: -9, 1: -9}, 0, None),  # its end was recorded before
    ({"state": "failed", "exit_code": 1, "error": "ValueError"}, {0: 1, 1: -15}, 1, "ValueError"),
    ({"state": "failed", "exit_code": 1, "error": "ValueError"}, {0: -9, 1: 1}, 1, "ValueError"),
    ({"state": "preempted", "exit_code": 75}, {0: 75, 1: 75}, 75, None),
    ({"state": "preempted", "exit_code": 75}, {0: 75, 1: 1}, 1, "process 1 failed before it could"),
    ({"state": "preempted", "exit_code": 75, "error": "disk full"}, {0: 75, 1: 1}, 75, "disk full"),
    ({"state": "pending"}, {0: -15, 2: 1}, 1, "process 2 failed before it could join"),
    ({"state": "running"}, {0: -9, 1: 1}, 75, "a process of the run died"),
])  # fmt: skip
def test_the_end_of_a_run_is_what_rank_0_recorded_or_what_is_known_of_the_others(
    recorded, codes, code, error, tmp_path
):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    store.set_status(**recorded)
    assert several.end(store, codes) == code
    assert (store.status().get("error") or "").startswith(error or "")
    assert bool(store.status().get("error")) == (error is not None)
    several.forget_end(store)
    assert store.status()["error"] is None and store.status()["exit_code"] is None


def test_a_run_that_starts_again_forgets_how_it_ended(tmp_path, monkeypatch):
    store = freeze(composed(f"runs_dir={tmp_path}"))
    store.set_status(state="preempted", exit_code=1, error="disk full")
    monkeypatch.setattr(several, "_launch", lambda *_: {})  # which a signal ends before any step
    assert several.start(store, tmp_path) == 75
    assert store.status()["error"] is None


class Others(ProcessGroup):
    """A group of two processes, whose other one has read other problems."""

    size = 2
    asked: ClassVar[list[str]] = []

    def on_main(self, function, *arguments):
        self.asked.append(function.__name__)
        return function(*arguments)

    def all_values(self, value):
        return [value, {"train": "others"}]


def test_processes_that_read_different_problems_are_an_error():
    config = composed("hardware.processes=2", "dry_run=true")
    with pytest.raises(ValueError, match=r"hardware\.processes=2: the processes have read diff"):
        build_trainer(config, None, None, Tracker(), Stop(), TrainClock(), lambda: None, Others())


def test_what_users_functions_decide_is_decided_on_the_main_process_alone():
    made, _ = loop("budget.max_steps=1")
    Others.asked.clear()
    list(steps_of(replace(made, process_group=Others()), 0, Uniform()))
    assert Others.asked == ["choose", "select_groups", "choose_trained"]
