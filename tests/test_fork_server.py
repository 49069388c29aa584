"""Jobs forked from a process that has imported their libraries behave like new processes."""

import json
import os
import signal
from dataclasses import replace

import psutil
import pytest
from compose import composed
from running import forked, start, wait_for

from pods.launch.local_backend import may_fork
from pods.runs.store import RunStore
from pods.system.errors import AGAIN

SHOW = """
import json, os, random, signal, sys
from glob import glob
import numpy as np
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "environment": dict(os.environ), "group": os.getpgrp(),
    "session": os.getsid(0), "pid": os.getpid(), "stdin": os.read(0, 1).decode(),
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "ignored": [n for n in (1, 2, 10, 12, 15, 17) if signal.getsignal(n) == signal.SIG_IGN],
    "handled": [n for n in (1, 10, 12, 15, 17) if callable(signal.getsignal(n))],
    "drawn": [random.random(), float(np.random.random())],
    "imported": "torch" in sys.modules,
    "server": open(f"/proc/{os.getppid()}/status").read().partition("SigBlk:")[2].split()[0],
    "threads": [open(path).read() for path in glob(f"/proc/{os.getppid()}/task/*/comm")],
}))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def printable(tmp_path):
    """Run code in a forked process; return its exit code, stdout and stderr."""

    def show(code, *words, environment=None):
        (tmp_path / "show.py").write_text(code)
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = forked(
                [str(tmp_path / "show.py"), *words],
                {"PATH": "/nowhere"} if environment is None else environment,
                tmp_path, out.fileno(), err.fileno())  # fmt: skip
            return process.wait(), *((tmp_path / name).read_text() for name in ("out", "err"))

    return show


def test_a_forked_process_has_the_state_of_a_new_one_and_the_libraries(printable, tmp_path):
    environment = {"PATH": "/nowhere", "ODD": "a\udcffb", "LONG": "x" * 1_000_000}
    code, out, err = printable(SHOW, "a word", environment=environment)
    found = json.loads(out)
    assert (code, err) == (3, "to stderr\n")
    assert found["argv"] == [str(tmp_path / "show.py"), "a word"]
    assert found["cwd"] == str(tmp_path) and found["environment"] == environment
    assert found["group"] == found["session"] == found["pid"]  # a session of its own
    assert found["stdin"] == ""
    here = [n for n in (1, 2, 10, 12, 15, 17) if signal.getsignal(n) == signal.SIG_IGN]
    assert (found["blocked"], found["ignored"], found["handled"]) == ([], here, [])
    assert int(found["server"], 16) & 0x4003 == 0x4003  # HUP, INT and TERM: jobs end after it
    threads = [name for name in found["threads"] if "jemalloc" not in name]  # it minds forks
    assert found["imported"] and len(threads) == 1  # so that it is safe to fork
    again = json.loads(printable(SHOW)[1])["drawn"]
    assert all(one != other for one, other in zip(found["drawn"], again, strict=True))


def test_the_end_of_a_forked_process_is_reported_as_by_popen(printable, tmp_path):
    assert printable("raise SystemExit(75)")[0] == 75
    code, out, err = printable("import atexit; atexit.register(print, 'last'); 1 / 0")
    assert (code, out) == (1, "last\n") and "ZeroDivisionError" in err
    assert printable("import os; os.kill(os.getpid(), 9)")[0] == -signal.SIGKILL
    (tmp_path / "wait.py").write_text("import time; time.sleep(60)")
    with (tmp_path / "console").open("wb") as console:
        process = forked([str(tmp_path / "wait.py")], os.environ, tmp_path, console.fileno())
        assert process.poll() is None
        process.terminate()
        assert process.wait() == process.poll() == -signal.SIGTERM
    process.terminate()  # has no effect any more


@pytest.mark.parametrize(("words", "forks"), [
    ((), True), (("hardware=l40s", "engine=transformers"), False),
    (("hardware.processes=2", "nm.groups=2"), False)])  # fmt: skip
def test_jobs_that_a_fork_would_break_are_not_forked(words, forks):
    configs = [composed(*words, f"seed={seed}") for seed in (0, 1)]
    assert may_fork(configs) == forks
    on_vllm = replace(configs[0], engine=replace(configs[0].engine, name="vllm"))
    other = replace(configs[0], hardware=replace(configs[0].hardware, threads=7))
    assert not may_fork([on_vllm, on_vllm]) and not may_fork(configs[:1])
    assert not may_fork([configs[0], other])


@pytest.mark.slow
def test_a_sweep_whose_server_is_killed_resumes_by_the_same_command(tmp_path, slowed):
    words = ("-m", "seed=0,1,2", *slowed, "checkpoint.every_steps=20")
    process = start(tmp_path, *words)
    runs = tmp_path / "runs"
    wait_for(lambda: sum(path.stat().st_size > 0 for path in runs.rglob("metrics.jsonl")) == 2)
    [mother] = [each for each in psutil.Process(process.pid).children() if each.children()]
    assert len(mother.children()) == 2
    mother.kill()
    (tmp_path / "slow").unlink()
    output, _ = process.communicate()
    stores = [RunStore(folder) for folder in sorted(runs.glob("*/*/*/seed*"))]
    assert process.returncode == AGAIN and "1 of 3 jobs done" in output
    wait_for(lambda: not any(store.is_held() for store in stores))
    process = start(tmp_path, *words)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert [store.status()["state"] for store in stores] == ["done"] * 3
    attempts = [len(list((store.folder / "attempts").iterdir())) for store in stores]
    assert attempts == [2, 2, 1]  # the forked jobs committed and were resumed
