"""Jobs forked from a process that has imported their libraries are as fresh ones would be."""

import json
import os
import signal
from dataclasses import replace

import psutil
import pytest
from compose import composed
from running import SHORT, science_of, server, start, wait_for

from pods.job import AGAIN, DONE
from pods.launch.fork_server import ForkServer
from pods.launch.local import fork_server
from pods.process import spawn
from pods.runs.frozen import freeze
from pods.runs.store import RunStore

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
def shown(tmp_path):
    """Run SHOW, or other code, in a forked process; returns exit code, stdout and stderr."""

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


def test_a_forked_process_has_what_a_fresh_one_would_have(shown, tmp_path):
    code, out, err = shown("3", environment={"PATH": "/nowhere", "ODD": "a\udcffb"})
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


def test_an_environment_may_be_larger_than_a_message(shown):
    environment = {f"LONG_{i}": "x" * 10_000 for i in range(100)}
    code, out, _ = shown(code="import os; print(len(os.environ))", environment=environment)
    assert (code, out) == (0, "100\n")


def test_forked_processes_do_not_share_random_states(shown):
    drawn = [json.loads(shown()[1])["drawn"] for _ in range(2)]
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


def test_how_a_forked_process_ends_is_told_as_by_popen(shown, tmp_path):
    assert shown(code="raise SystemExit(75)")[0] == 75
    code, out, err = shown(code="import atexit; atexit.register(print, 'last'); 1 / 0")
    assert (code, out) == (1, "last\n") and "ZeroDivisionError" in err
    assert shown(code="import os; os.kill(os.getpid(), 9)")[0] == -signal.SIGKILL
    with (tmp_path / "console").open("wb") as console:
        process = server().spawn(["timeit", "-n1", "-r1", "import time; time.sleep(60)"],
                                 os.environ, None, console.fileno(), console.fileno())  # fmt: skip
    assert process.poll() is None and process.returncode is None
    process.terminate()
    assert process.wait() == process.poll() == process.returncode == -signal.SIGTERM
    process.terminate()  # nobody


def test_a_forked_job_leaves_the_bytes_of_a_fresh_one(tmp_path, monkeypatch):
    """The server's threads are the config's, and at the fork it has one: torch has run nothing."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    configs = [composed(*SHORT, f"runs_dir={tmp_path / name}") for name in ("fresh", "forked")]
    stores = [freeze(config) for config in configs]
    with fork_server(configs) as forks:
        assert spawn_job(stores[0], None).wait() == DONE
        wait_for(lambda: not forks.is_loading())
        assert os.listdir(f"/proc/{forks._process.pid}/task") == [str(forks._process.pid)]
        assert spawn_job(stores[1], forks).wait() == DONE
    fresh, forked = (science_of(store.folder) for store in stores)
    assert forked == fresh and len(forked[1]) > 10


def spawn_job(store, forks):
    words = [str(store.folder)]
    return spawn("pods.job", words, store.folder, store.config(), (), None, forks)


@pytest.mark.parametrize(
    "words",
    [("hardware=l40s", "engine=transformers"), ("hardware.processes=2", "nm.groups=2"),
     ("launch.fork_server=false",)],
)  # fmt: skip
def test_jobs_that_a_fork_would_break_or_that_ask_for_it_start_afresh(words):
    assert fork_server([composed(*words, f"seed={seed}") for seed in (0, 1)]) is None


def test_one_job_or_jobs_of_different_threads_start_afresh():
    assert fork_server([composed()]) is None
    assert fork_server([composed(), composed("hardware.threads=2")]) is None


def test_jobs_on_vllm_start_afresh():
    config = composed()
    on_vllm = replace(config, engine=replace(config.engine, name="vllm"))
    assert fork_server([on_vllm, on_vllm]) is None


def test_a_server_that_cannot_import_is_dead_and_one_that_dies_lets_its_jobs_stop(tmp_path):
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
    assert job.wait() == AGAIN  # as of a job that was stopped: the same command runs it again
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


def test_a_sweep_whose_server_is_killed_goes_on_with_fresh_processes(tmp_path, monkeypatch):
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
    assert "2 jobs are run by other processes: waiting for them" in output
    stores = [RunStore(folder) for folder in sorted(runs.glob("*/*/*/seed*"))]
    assert [store.status()["state"] for store in stores] == ["done"] * 3
    attempts = [len(list((store.folder / "attempts").iterdir())) for store in stores]
    assert attempts == [2, 2, 1]  # what the server had forked has committed and gone on
