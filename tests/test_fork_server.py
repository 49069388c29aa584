"""Jobs forked from a process that has imported their libraries behave like new processes."""

import json
import os
import signal
from dataclasses import replace

import psutil
import pytest
from compose import composed
from running import SHORT, science_of, server, start, wait_for

from pods.launch.backend import Job
from pods.launch.fork_server import ForkServer
from pods.launch.local_backend import fork_server
from pods.launch.subprocesses import start_job
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.system.errors import AGAIN, DONE

SHOW = """
import json, os, random, signal, sys
import numpy as np
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "environment": dict(os.environ), "group": os.getpgrp(),
    "session": os.getsid(0), "pid": os.getpid(), "stdin": os.read(0, 1).decode(),
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "ignored": [n for n in (1, 2, 10, 12, 15, 17) if signal.getsignal(n) == signal.SIG_IGN],
    "handled": [n for n in (1, 10, 12, 15, 17) if callable(signal.getsignal(n))],
    "files": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{n}")),
    "drawn": [random.random(), float(np.random.random())],
}))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def printable(tmp_path):
    """Return a function that runs SHOW, or other code, in a forked process.

    It returns exit code, stdout and stderr.
    """

    def show(*words, environment=None, code=SHOW):
        (tmp_path / "show.py").write_text(code)
        out, err = (tmp_path / name for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = server().spawn(
                ["as_typed", "3", str(tmp_path / "show.py"), *words],
                {"PATH": "/nowhere"} if environment is None else environment,
                tmp_path, stdout.fileno(), stderr.fileno(),
            )  # fmt: skip
        return process.wait(), out.read_text(), err.read_text()

    return show


def test_a_forked_process_has_the_state_of_a_new_one(printable, tmp_path):
    code, out, err = printable("3", environment={"PATH": "/nowhere", "ODD": "a\udcffb"})
    found = json.loads(out)
    assert (code, err) == (3, "to stderr\n")
    assert found["argv"] == [str(tmp_path / "show.py"), "3"]
    assert found["cwd"] == str(tmp_path)
    assert found["environment"] == {"PATH": "/nowhere", "ODD": "a\udcffb"}
    assert found["group"] == found["session"] == found["pid"]  # a session of its own
    assert found["stdin"] == ""
    here = [
        number for number in (1, 2, 10, 12, 15, 17) if signal.getsignal(number) == signal.SIG_IGN
    ]
    assert (found["blocked"], found["ignored"], found["handled"]) == ([], here, [])
    assert found["files"] == sorted(["/dev/null", *(str(tmp_path / n) for n in ("out", "err"))])


def test_an_environment_may_be_larger_than_a_message(printable):
    environment = {f"LONG_{i}": "x" * 10_000 for i in range(100)}
    code, out, _ = printable(code="import os; print(len(os.environ))", environment=environment)
    assert (code, out) == (0, "100\n")


def test_forked_processes_do_not_share_random_states(printable):
    drawn = [json.loads(printable()[1])["drawn"] for _ in range(2)]
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


def test_the_end_of_a_forked_process_is_reported_as_by_popen(printable, tmp_path):
    assert printable(code="raise SystemExit(75)")[0] == 75
    code, out, err = printable(code="import atexit; atexit.register(print, 'last'); 1 / 0")
    assert (code, out) == (1, "last\n") and "ZeroDivisionError" in err
    assert printable(code="import os; os.kill(os.getpid(), 9)")[0] == -signal.SIGKILL
    with (tmp_path / "console").open("wb") as console:
        process = server().spawn(["timeit", "-n1", "-r1", "import time; time.sleep(60)"],
                                 os.environ, None, console.fileno(), console.fileno())  # fmt: skip
    assert process.poll() is None and process.returncode is None
    process.terminate()
    assert process.wait() == process.poll() == process.returncode == -signal.SIGTERM
    process.terminate()  # has no effect any more


def test_a_forked_job_writes_the_same_bytes_as_a_new_process(tmp_path, monkeypatch):
    """The server uses the config's number of threads, and has one thread when it forks."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    configs = [composed(*SHORT, f"runs_dir={tmp_path / name}") for name in ("fresh", "forked")]
    stores = [freeze(config) for config in configs]
    with fork_server(configs) as forks:
        jobs = [Job(*each) for each in zip(stores, configs, strict=True)]
        assert start_job(jobs[0]).process.wait() == DONE
        wait_for(lambda: not forks.is_loading())
        assert os.listdir(f"/proc/{forks._process.pid}/task") == [str(forks._process.pid)]
        assert start_job(jobs[1], server=forks).process.wait() == DONE
    fresh, forked = (science_of(store.folder) for store in stores)
    assert forked == fresh and len(forked[1]) > 10


@pytest.mark.parametrize(
    "words",
    [("hardware=l40s", "engine=transformers"), ("hardware.processes=2", "nm.groups=2"),
     ("launch.fork_server=false",)],
)  # fmt: skip
def test_jobs_that_a_fork_would_break_or_that_switch_it_off_are_not_forked(words):
    assert fork_server([composed(*words, f"seed={seed}") for seed in (0, 1)]) is None


def test_a_single_job_and_jobs_with_different_threads_are_not_forked():
    assert fork_server([composed()]) is None
    assert fork_server([composed(), composed("hardware.threads=2")]) is None


def test_jobs_on_vllm_are_not_forked():
    config = composed()
    on_vllm = replace(config, engine=replace(config.engine, name="vllm"))
    assert fork_server([on_vllm, on_vllm]) is None


def test_a_server_that_cannot_import_is_dead_and_jobs_stop_if_their_server_dies(tmp_path):
    broken = ForkServer(1, ["no_such_module"])
    wait_for(lambda: not broken.is_loading())
    assert not broken.is_alive()
    with pytest.raises(OSError), (tmp_path / "console").open("wb") as console:
        broken.spawn(["this"], {}, None, console.fileno(), console.fileno())
    light = ForkServer(1, ["numpy"])
    wait_for(lambda: not light.is_loading())
    code = ("import signal, sys, time; signal.signal(15, lambda *_: sys.exit(print('stopped')));"
            "print('here', flush=True); time.sleep(60)")  # fmt: skip
    with (tmp_path / "console").open("wb") as console:
        job = light.spawn(["timeit", "-n1", "-r1", code], os.environ, None,
                          console.fileno(), console.fileno())  # fmt: skip
    wait_for(lambda: (tmp_path / "console").read_text() == "here\n")
    light._process.kill()
    assert job.wait() == AGAIN  # as for a job that was stopped
    wait_for(lambda: "stopped" in (tmp_path / "console").read_text())
    light.__exit__()


SLOW = """
import time
from dataclasses import replace
from pathlib import Path
def rule(group, m, rng):
    if Path("slow").exists():
        time.sleep(0.2)
    return range(m)
"""


def test_a_sweep_whose_server_is_killed_continues_with_new_processes(tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(SLOW)
    (tmp_path / "slow").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start(
        tmp_path, "-m", "seed=0,1,2", *SHORT, "nm.n=8", "nm.m=4", "budget.max_steps=30",
        "checkpoint.every_steps=30", "sampler.rule=my_rules:rule",
    )  # fmt: skip
    runs = tmp_path / "runs"
    logs = "*/*/*/seed*/metrics.jsonl"
    wait_for(lambda: sum(path.stat().st_size > 0 for path in runs.glob(logs)) == 2)
    [mother] = psutil.Process(process.pid).children()
    assert "pods.launch.fork_server" in mother.cmdline() and len(mother.children()) == 2
    mother.kill()
    (tmp_path / "slow").unlink()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "waiting for 2 jobs that other processes run" in output
    stores = [RunStore(folder) for folder in sorted(runs.glob("*/*/*/seed*"))]
    assert [store.status()["state"] for store in stores] == ["done"] * 3
    attempts = [len(list((store.folder / "attempts").iterdir())) for store in stores]
    assert attempts == [2, 2, 1]  # the forked jobs committed and were resumed
