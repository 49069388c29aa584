"""The product as a user meets it: `python src/run.py`, real tiny model, real processes."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compose import ROOT

from pods.runs import checkpoint
from pods.runs.files import read_lines

SHORT = ("budget.max_steps=4", "checkpoint.every_steps=2", "evaluation.questions=16",
         "evaluation.repeats=2", "rollouts_every_steps=2", "tracking=none")  # fmt: skip


def run_folder(tmp_path: Path) -> Path:
    [folder] = (tmp_path / "runs").glob("*/*/*/seed*")
    return folder


def science_of(folder: Path) -> tuple[list, dict[str, bytes]]:
    """What must be equal in equal runs: metrics without seconds, and the bytes of the rest."""
    lines = [
        {k: v for k, v in line.items() if "seconds" not in k}
        for line in read_lines(folder / "metrics.jsonl")
    ]
    names = ["evaluations/*", "rollouts/*", "checkpoints/*/policy/*", "checkpoints/*/*.safetensors"]
    files = sorted(path for name in names for path in folder.glob(name))
    return lines, {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_one_run_leaves_what_the_readme_says(run_py, tmp_path):
    result = run_py(*SHORT)
    assert result.returncode == 0, result.stderr
    folder = run_folder(tmp_path)
    assert folder.parent.relative_to(tmp_path / "runs") == Path(
        "default/tiny-chainsum/max_variance-n64-m16"
    )
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["step"], status["error"]) == ("done", 4, None)
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        phases = {k: v for k, v in line.items() if k.startswith("seconds/")}
        assert set(phases) == {
            f"seconds/{p}" for p in ("generate", "reward", "select", "update", "sync")
        }
        assert line["grad_norm"] > 0
    assert lines[-1]["train_seconds"] == pytest.approx(
        sum(v for line in lines for k, v in line.items() if k.startswith("seconds/"))
    )
    for step in (0, 2, 4):
        records = read_lines(folder / "evaluations" / f"step-{step:06d}.jsonl")
        assert [(r["repeat"], r["question"]) for r in records] == [
            (r, f"test-{q:04d}") for r in range(2) for q in range(16)
        ]
        assert len({r["seed"] for r in records}) == 32
        saved = folder / "checkpoints" / f"step-{step:06d}"
        assert checkpoint.verify(saved)
        assert (saved / "optimizer.safetensors").exists() == (step > 0)  # of the last two
    packed = (folder / "rollouts" / "step-000002.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    assert len(rows) == 128 and sum(row["kept"] for row in rows) == 32
    environment = json.loads((folder / "attempts" / "001" / "environment.json").read_text())
    assert environment["packages"]["torch"] and environment["cpu"]
    again = run_py(*SHORT)
    assert again.returncode == 0 and "is done already" in again.stdout
    assert len(list((folder / "attempts").iterdir())) == 1


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(run_py, tmp_path):
    for place, seed in (("a", 0), ("b", 0), ("c", 1)):
        result = run_py(*SHORT, f"seed={seed}", f"runs_dir={tmp_path / place / 'runs'}")
        assert result.returncode == 0, result.stderr
    a, b, c = (science_of(run_folder(tmp_path / place)) for place in "abc")
    assert a == b
    assert len(a[1]) > 10
    for key in ("prompts", "kept", "reward"):
        assert [line[key] for line in a[0]] != [line[key] for line in c[0]]
    repeats = a[1]["evaluations/step-000000.jsonl"].splitlines()
    answers = [[json.loads(x)["correct"] for x in part] for part in (repeats[:16], repeats[16:])]
    assert answers[0] != answers[1]


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "src" / "run.py"), *arguments],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(run_py, tmp_path, how):
    longer = (*SHORT, "budget.max_steps=40", "checkpoint.every_steps=15")
    process = start(tmp_path, *longer)
    metrics = tmp_path / "runs"
    wait_for(lambda: any(p.stat().st_size > 10_000 for p in metrics.glob("*/*/*/*/metrics.jsonl")))
    process.send_signal(how)
    output, _ = process.communicate(timeout=30)
    folder = run_folder(tmp_path)
    if how == signal.SIGTERM:
        assert process.returncode == 75, output
        assert json.loads((folder / "status.json").read_text())["state"] == "preempted"
    assert run_py(*longer).returncode == 0
    assert run_py(*longer, f"runs_dir={tmp_path / 'whole' / 'runs'}").returncode == 0
    assert science_of(folder) == science_of(run_folder(tmp_path / "whole"))


def test_a_sweep_with_a_failing_job_finishes_the_others_and_says_why(run_py, tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(
        "import os\n"
        "def sometimes(group, m, rng):\n"
        "    if 'BREAK' in os.environ and 'seed1' in ' '.join(os.sys.argv): os._exit(9)\n"
        "    return range(m)\n"
    )
    sweep = ("-m", "seed=0,1", "sampler.rule=my_rules:sometimes", *SHORT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("BREAK", "1")
    result = run_py(*sweep)
    assert result.returncode == 1
    assert "1 of 2 jobs done" in result.stdout
    assert "seed 1: exit code 9" in result.stderr
    again = run_py(*sweep)  # failed jobs wait to be asked for
    assert again.returncode == 1 and "retry=failed" in again.stdout
    monkeypatch.delenv("BREAK")
    result = run_py(*sweep, "retry=failed")
    assert result.returncode == 0, result.stderr
    assert "1 done before" in result.stdout and "2 of 2 jobs done" in result.stdout
    figures = tmp_path / "runs" / "default" / "figures"
    assert {p.name for p in figures.iterdir()} == {
        "accuracy_vs_time.png", "accuracy_vs_time.pdf", "accuracy_vs_time.csv",
        "accuracy_vs_time.runs.csv", "summary.csv", "paired.csv",
    }  # fmt: skip


def test_a_sweep_is_seed_major_and_every_job_has_its_own_process(run_py, tmp_path):
    result = run_py("-m", "sampler=max_variance,random", "seed=range(2)", "launch.jobs=1", *SHORT)
    assert result.returncode == 0, result.stderr
    ended = [line for line in result.stdout.splitlines() if line.startswith("[")]
    assert [("seed 0" in line, "random" in line) for line in ended] == [
        (True, False), (True, True), (False, False), (False, True),
    ]  # fmt: skip
    pids = {json.loads(p.read_text())["pid"] for p in (tmp_path / "runs").rglob("status.json")}
    assert len(pids) == 4


def test_the_frozen_config_runs_even_if_conf_is_edited_later(run_py, tmp_path, monkeypatch):
    """The launcher freezes all jobs before the first; the first one here edits what conf/ says."""
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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run_py("-m", "seed=0,1", "sampler.rule=meddler:rule", "launch.jobs=1", *SHORT[1:],
                    "+group=later", "hydra.searchpath=[file://conf]")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "max_steps: 7" in later.read_text()
    steps = [len(read_lines(path)) for path in (tmp_path / "runs").rglob("metrics.jsonl")]
    assert steps == [2, 2]


def test_a_sweep_that_is_stopped_leaves_no_process_and_goes_on(run_py, tmp_path):
    sweep = ("-m", "seed=0,1", *SHORT, "budget.max_steps=60", "launch.jobs=2")
    process = start(tmp_path, *sweep)
    runs = tmp_path / "runs"
    wait_for(lambda: len([p for p in runs.rglob("metrics.jsonl") if p.stat().st_size > 3000]) == 2)
    pids = [json.loads(path.read_text())["pid"] for path in runs.rglob("status.json")]
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "stopping at the next safe point" in output and "preempted" in output
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    result = run_py(*sweep)
    assert result.returncode == 0 and "2 of 2 jobs done" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sede=3"], "error: sede=3: no such key; did you mean seed?\n"),
        (["+typo=1"], "error: typo=1: no such key; see conf/README.md\n"),
        (["nm.m=99"], "error: nm.m=99: must be at most nm.n=64\n"),
        (
            ["sampler=maxvar"],
            "error: sampler=maxvar: must be one of all, max_reward, max_variance, random\n",
        ),
        (["experiment=nope"], "error: experiment=nope: must be one of quickstart\n"),
        (["seed=0,1"], "error: seed=0,1: several values; add -m to sweep over them\n"),
        (["-m", "seed=0,x"], "error: seed=x: must be an integer >= 0\n"),
    ],
)
def test_bad_input_ends_in_one_line_before_anything_is_written(
    run_py, tmp_path, arguments, message
):
    started = time.perf_counter()
    result = run_py(*arguments)
    seconds = time.perf_counter() - started
    assert (result.returncode, result.stderr, result.stdout) == (2, message, "")
    assert not list(tmp_path.rglob("seed*"))
    assert seconds < 10  # it takes half a second; torch alone would take longer on a slow machine


def test_help_shows_the_groups_and_the_quoted_sweep(run_py):
    result = run_py("--help")
    assert result.returncode == 0
    assert "'seed=range(8)'" in result.stdout and "sampler: all, max_reward" in result.stdout


def test_missing_weights_are_reported_with_the_remedy(run_py, tmp_path, monkeypatch):
    monkeypatch.setenv("PODS_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    result = run_py("model=smollm2_135m", *SHORT)
    assert result.returncode == 1
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert "pods fetch smollm2_135m" in line and "model.path" in line
    status = json.loads((run_folder(tmp_path) / "status.json").read_text())
    assert status["state"] == "pending" and "pods fetch" in status["error"]
    assert "is done" not in run_py("model=smollm2_135m", *SHORT).stdout  # it is tried again


def test_wandb_offline_mirrors_the_run_and_its_failure_stops_nothing(run_py, tmp_path, monkeypatch):
    short = [argument for argument in SHORT if not argument.startswith("tracking")]
    assert run_py(*short, "tracking=offline").returncode == 0
    folder = run_folder(tmp_path)
    [recorded] = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = recorded.read_bytes()
    for expected in (b"eval/accuracy", b"train_seconds", b"seconds/generate", b"max_variance"):
        assert expected in content
    blocked = tmp_path / "blocked"
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    result = run_py(
        *short, "tracking=online", "tracking.project=x", f"runs_dir={blocked}", "seed=2"
    )
    assert result.returncode == 0, result.stderr
    assert "W&B is off for this run" in result.stdout
    assert len(read_lines(next(blocked.rglob("metrics.jsonl")))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["grpo", "pods"])
def test_the_default_task_is_learned(run_py, tmp_path, arm):
    """Steps, not seconds, so that a slow machine changes nothing: about 30 s on one core."""
    result = run_py(f"arm={arm}", "budget.train_seconds=null", "budget.max_steps=600",
                    "checkpoint.every_steps=null", "tracking=none")  # fmt: skip
    assert result.returncode == 0, result.stderr
    accuracies = [
        sum(row["correct"] for row in read_lines(path)) / len(read_lines(path))
        for path in sorted(run_folder(tmp_path).glob("evaluations/*"))
    ]
    assert 0.1 <= accuracies[0] <= 0.4
    assert accuracies[-1] >= 0.95
