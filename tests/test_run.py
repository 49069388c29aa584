"""The product as a user meets it: `python src/run.py`, real tiny model, real processes."""

import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import running
from compose import ROOT
from running import RUN_PY, SHORT, busy, forked, note_imports, run_folder, run_here, start, wait_for

from pods.launch.backend import has_work_left
from pods.runs import checkpoint
from pods.runs.files import read_lines
from pods.runs.history import newest_checkpoint
from pods.runs.store import RunStore
from pods.system.signals import Preempted, stop_on_signals


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Return the folder in which `python src/run.py` has made a short run."""
    workdir = tmp_path_factory.mktemp("run")
    process = start(workdir, *SHORT)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    return workdir


def test_a_run_leaves_the_files_that_the_readme_lists(workdir):
    folder = run_folder(workdir)
    place = Path("default/tiny-chainsum/max_variance-n64-m16")
    assert folder.parent.relative_to(workdir / "runs") == place
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["step"], status["error"]) == ("done", 4, None)
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        phases = {k: v for k, v in line.items() if k.startswith("seconds/")}
        names = ("generate", "reward", "select", "update", "sync")
        assert set(phases) == {f"seconds/{name}" for name in names}
        assert set(line) >= {key.replace("seconds/", "cpu_seconds/") for key in phases}
        assert line["cpu_seconds/generate"] > 0 and line["grad_norm"] > 0
    charged = sum(v for line in lines for k, v in line.items() if k.startswith("seconds/"))
    assert lines[-1]["train_seconds"] == pytest.approx(charged)
    for step in (0, 2, 4):
        records = read_lines(folder / "evaluations" / f"step-{step:06d}.jsonl")
        assert [(r["repeat"], r["question"]) for r in records] == [
            (r, f"test-{q:04d}") for r in range(2) for q in range(16)
        ]
        assert len({r["seed"] for r in records}) == 32
        saved = folder / "checkpoints" / f"step-{step:06d}"
        assert checkpoint.damage(saved) is None
        assert (saved / "optimizer.safetensors").exists() == (step > 0)  # of the last two
    kept = sorted(path.name[:11] for path in (folder / "rollouts").iterdir())
    assert kept == ["step-000001", "step-000002", "step-000004"]  # every second one, and the first
    rows = read_lines(folder / "rollouts" / "step-000002.jsonl.gz")
    assert len(rows) == 128 and sum(row["kept"] for row in rows) == 32
    environment = json.loads((folder / "attempts" / "001" / "environment.json").read_text())
    assert environment["packages"]["torch"] and environment["cpu"]
    began = datetime.fromisoformat(environment["started"])
    assert timedelta(0) <= datetime.now(UTC) - began < timedelta(minutes=30)
    again = running.start_forked(workdir, *SHORT)
    output, _ = again.communicate()
    assert again.returncode == 0 and "is already done" in output
    assert len(list((folder / "attempts").iterdir())) == 1


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(workdir, run_py, tmp_path):
    result = run_py(*SHORT, "seed=0")  # its Python has another hash seed
    assert result.returncode == 0, result.stderr
    other = run_here(*SHORT, "seed=1", f"runs_dir={tmp_path / 'other'}").folder
    folders = (run_folder(workdir), run_folder(tmp_path), other)
    a, b, c = map(running.science_of, folders)
    assert a == b and len(a[1]) > 10
    for key in ("prompts", "kept", "reward"):
        assert [line[key] for line in a[0]] != [line[key] for line in c[0]]
    repeats = a[1]["evaluations/step-000000.jsonl"].splitlines()
    answers = [[json.loads(x)["correct"] for x in part] for part in (repeats[:16], repeats[16:])]
    assert answers[0] != answers[1]


def test_the_user_defined_rule_in_the_readme_works(tmp_path, monkeypatch):
    readme = (ROOT / "src/pods/tasks/README.md").read_text()
    code = readme.split("```python\n# my_rules.py\n")[1].split("```")[0]
    assert "sampler.rule=my_rules:shortest" in readme and len(code.splitlines()) <= 10
    (tmp_path / "my_rules.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    store = run_here("sampler.rule=my_rules:shortest", *SHORT, f"runs_dir={tmp_path / 'runs'}")
    rows = read_lines(store.folder / "rollouts" / "step-000002.jsonl.gz")
    for group in (rows[:64], rows[64:]):
        kept = [row["length"] for row in group if row["kept"]]
        assert len(kept) == 16
        assert max(kept) <= min(row["length"] for row in group if not row["kept"])


@pytest.mark.parametrize(
    ("words", "jobs"), [([], 1), pytest.param(["-m", "seed=0,1"], 2, marks=pytest.mark.slow)]
)
def test_closing_the_terminal_stops_a_run(tmp_path, words, jobs):
    """Closing sends SIGHUP, and from then on nothing can be printed."""
    master, slave = pty.openpty()
    take_terminal = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL);"  # these tests may run under nohup
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    run = [str(ROOT / "src" / "run.py"), *words, *SHORT, "budget.max_steps=100000"]
    process = subprocess.Popen(
        [sys.executable, "-c", take_terminal, *run],
        cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)  # fmt: skip
    os.close(slave)
    logs = "*/*/*/seed*/metrics.jsonl"
    wait_for(lambda: busy(tmp_path) == jobs)
    family = psutil.Process(process.pid).children(recursive=True)
    os.close(master)
    assert process.wait(900) == 75
    assert psutil.wait_procs(family, timeout=60)[1] == []
    for path in (tmp_path / "runs").glob(logs):
        store = RunStore(path.parent)
        newest, _ = newest_checkpoint(store, "optimizer.safetensors")
        assert store.status()["state"] == "preempted"
        assert store.clock(newest)["step"] == len(read_lines(store.metrics_path))


def test_a_run_continues_if_its_output_is_not_read(tmp_path):
    read, write = os.pipe()
    process = forked([RUN_PY, *SHORT], os.environ, tmp_path, write)
    wait_for(lambda: list(tmp_path.rglob("status.json")))
    os.close(read)  # as `| head` does
    os.close(write)
    process.wait()
    assert RunStore(run_folder(tmp_path)).status()["state"] == "done"


def test_a_signal_that_is_ignored_stays_ignored():
    """nohup ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGUSR1)
            assert stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


MOMENTS = [
    ("my_rules", ("-m", "seed=0,1", "sampler.rule=my_rules:rule")),
    pytest.param("matplotlib", ("-m", "seed=0", *SHORT), marks=pytest.mark.slow)]  # fmt: skip


@pytest.mark.parametrize(("module", "words"), MOMENTS)
def test_ctrl_c_while_no_run_is_going_on_is_one_line(module, words, tmp_path, monkeypatch):
    """It comes within an import: of a rule, or of the figure."""
    (tmp_path / f"{module}.py").write_text("open('reached', 'w').close(); input()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    program = [sys.executable, "-m", "pods.cli.main", "run"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([*program, *words], cwd=tmp_path, **pipes, text=True)
    wait_for((tmp_path / "reached").exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    lines = [line for line in errors.splitlines() if not line.startswith("warning: ")]
    assert (process.returncode, lines) == (130, ["stopped; the same command continues"])


INTERRUPTED = """
import os, signal, time
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.3)
imported = True
"""


def test_a_signal_stops_a_loading_run_at_once_but_after_an_import(tmp_path, monkeypatch):
    """An exception that passes through a C++ library's import can abort the process."""
    with stop_on_signals() as stop, pytest.raises(Preempted), stop.while_loading():
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("not stopped")
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    monkeypatch.syspath_prepend(tmp_path)
    before, handled = signal.getsignal(signal.SIGALRM), []
    with stop_on_signals() as stop, pytest.raises(Preempted), stop.while_loading():
        handled.append(importlib.import_module("interrupted"))
        time.sleep(30)  # as weights load
        handled.append("all")
    assert handled == [sys.modules.pop("interrupted")] and handled[0].imported
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


BAD = [  # test_config.py has the others
    (["sede=3"], "sede=3: no such key; did you mean seed?"),
    (["engine=vlm"], "engine=vlm: did you mean vllm? It must be one of transformers, vllm"),
    (["seed=0,1"], "seed=0,1: must be one value; `python src/run.py -m` sweeps over several"),
    (["-m", "arm=[dapo,pods]"], "arm=[dapo,pods]: must be one; `-m arm=dapo,pods` sweeps"),
    (["-m", "arm=grpo,[dapo,pods]"], "arm=[dapo,pods]: must be one; `-m arm=dapo,pods` sweeps"),
    (["-m", "launch=local,null"], "launch=null: must be one of local, ray, slurm"),
    (["-m", "seed=range(0)"], "seed=range(0): has no value"),
    (["-m", "seed=0,1", "arm=glob(xyz*)"], "arm=glob(xyz*): has no value"),
    (["-m", "seed=range(5,5)", "arm=pods"], "seed=range(5,5): has no value"),
    (["-m", "seed=interval(0,3)"], "seed=interval(0,3): must list its values: seed=1,2"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(run_py, tmp_path, arguments, message):
    result = run_py(*arguments)
    assert (result.returncode, result.stderr, result.stdout) == (2, f"error: {message}\n", "")
    assert not list(tmp_path.iterdir())


def test_runs_go_to_the_home_that_a_tilde_means(run_py, tmp_path, monkeypatch):
    """No shell expands it within quotes."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    result = run_py("runs_dir='~/my runs'", *running.ONE_STEP)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "home/my runs/default"
    assert list(folder.glob("*/*/seed*")) and str(folder) in result.stdout
    assert not (tmp_path / "~").exists()


READ_ONLY = """
import os
def mkdir(at, *mode, plain=os.mkdir):
    if "read-only" in str(at):
        raise OSError(30, os.strerror(30), at)
    plain(at, *mode)
os.mkdir = mkdir
"""


@pytest.mark.parametrize(("word", "code", "said"), [
    ("seed=0,x", 2, "seed=x: must be an integer >= 0\n"),
    ("runs_dir=read-only", 75,
     "runs_dir=read-only, [^\n]*: Read-only file system\\)\nfix this, then [^\n]*\n"),
])  # fmt: skip
def test_errors_come_before_anything_heavy(word, code, said, run_fresh, tmp_path, monkeypatch):
    imported = note_imports(tmp_path, monkeypatch)
    with (tmp_path / "site" / "sitecustomize.py").open("a") as file:
        file.write(READ_ONLY)  # a disk with number 30, EROFS
    result = run_fresh("-m", word)
    assert result.returncode == code and re.fullmatch(f"error: {said}", result.stderr)
    names = set(imported.read_text().split())
    assert "hydra" in names and not {"torch", "transformers", "pandas"} & names


def test_help_shows_the_groups_and_the_quoted_sweep(run_py):
    result = run_py("--help")
    assert result.returncode == 0
    assert "'seed=range(8)'" in result.stdout and "sampler: all, balanced" in result.stdout


def test_missing_weights_are_reported_with_the_remedy(run_py, tmp_path, monkeypatch):
    monkeypatch.setenv("PODS_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    result = run_py("model=smollm2_135m", *SHORT)
    assert result.returncode == 1
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert "pods fetch smollm2_135m" in line and "model.path" in line
    store = RunStore(run_folder(tmp_path))
    status = store.status()
    assert status["state"] == "pending" and "pods fetch" in status["error"]
    assert has_work_left(store, store.config())  # the same command tries again


@pytest.mark.slow
def test_the_default_task_is_learned(run_py, tmp_path):
    """Train by steps, not seconds, so that a slow machine changes nothing; 35 s on one core."""
    result = run_py("budget.train_seconds=null", "budget.max_steps=400", "evaluation.repeats=1",
                    "checkpoint.every_steps=null", "tracking=none")  # fmt: skip
    assert result.returncode == 0, result.stderr
    accuracies = [
        sum(row["correct"] for row in read_lines(path)) / len(read_lines(path))
        for path in sorted(run_folder(tmp_path).glob("evaluations/*.jsonl"))
    ]
    assert 0.1 <= accuracies[0] <= 0.4
    assert accuracies[-1] >= 0.95
