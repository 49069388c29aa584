"""Whole runs on vLLM: killed, broken, out of date, and on the real LLM."""

import json
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import forking
import pytest
from compose import ROOT
from running import SHORT, run_folder, science_of
from test_kill import killing

from pods.runs.files import read_lines

pytestmark = pytest.mark.vllm
STEPS = ("engine=vllm", "sampler.rule=faults:rule", "nm.n=8", "nm.m=4", *SHORT)
BESIDE_ENGINES = pytest.mark.xdist_group("vllm engines")  # so that two workers have equal shares
LONGEST = 600.0  # seconds of a run, where the machine has much else to do


def run_afresh(tmp_path, *arguments):
    """A process as a user starts it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "src" / "run.py"), *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def run():
    """The same, forked: a start without the imports."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload(list(forking.ON_VLLM))

    def run(place, *arguments, **environment):
        process = forks.Process(
            target=forking.run, args=(place, arguments, {**os.environ, **environment})
        )
        process.start()
        process.join(LONGEST)
        process.kill()
        process.join()
        out, err = ((place / name).read_text() for name in ("out", "err"))
        return SimpleNamespace(returncode=process.exitcode, stdout=out, stderr=err)

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a run leaves that was started afresh and left alone."""
    place = tmp_path_factory.mktemp("whole")
    result = run_afresh(place, *STEPS)
    assert result.returncode == 0, result.stderr
    return science_of(run_folder(place))


def status(tmp_path):
    return json.loads((run_folder(tmp_path) / "status.json").read_text())


@BESIDE_ENGINES
def test_runs_that_are_killed_anywhere_end_in_the_same_bytes(tmp_path, capsys):
    found = killing("vllm", tmp_path, 20, 0)
    with capsys.disabled():
        print(f"\n{sum(found['kills'].values())} kills in {found['runs']} runs: {found['kills']}")
    assert found["differences"] == []
    assert sum(found["kills"].values()) >= 20 and len(found["kills"]) == 5


@pytest.mark.parametrize(("fault", "said"), [("raise", "injected"), ("hang", "no sign of life")])
def test_an_engine_that_breaks_or_hangs_ends_the_process_and_the_same_command_goes_on(
    run, whole, tmp_path, fault, said
):
    limit = ["watchdog_seconds=8"] if fault == "hang" else []
    broken = run(tmp_path, *STEPS, *limit, FAULT=fault)
    assert broken.returncode == 75, broken.stderr
    assert said in broken.stderr
    assert status(tmp_path)["state"] == "preempted"
    assert said in status(tmp_path)["error"]
    result = run(tmp_path, *STEPS)
    assert result.returncode == 0, result.stderr
    assert science_of(run_folder(tmp_path)) == whole


def test_an_engine_that_goes_stale_raises_an_alarm_and_soon_ends_the_run(run, tmp_path):
    result = run(tmp_path, *STEPS, "budget.max_steps=20", "update.lr=1e-3", FAULT="stale")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "alarm: step 2: the engine's log-probs are" in result.stdout
    assert "step 4, like 2 before it: the engine's log-probs" in status(tmp_path)["error"]
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    assert len(lines) == 4  # the first is right, and three are not
    assert lines[0]["logprob_gap_mean"] < 1e-5
    assert lines[1]["logprob_gap_mean"] > 1e-4


def test_a_merge_that_rounds_the_change_away_ends_the_run_unless_it_is_allowed(run, tmp_path):
    coarse = (*STEPS, "model.tuning=lora", "model.dtype=bfloat16", "engine.dtype=bfloat16",
              "engine.gap_bound=0.1", "update.lr=1e-5")  # fmt: skip
    result = run(tmp_path, *coarse)
    assert result.returncode == 1
    assert "step 1: the merge makes 0." in status(tmp_path)["error"]
    result = run(tmp_path, *coarse, "engine.min_kept=0", "retry=failed")
    assert result.returncode == 0, result.stderr
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    assert 0 < max(line["kept_projection"] for line in lines) < 0.9
    assert max(line["logprob_gap_mean"] for line in lines) > 1e-4  # bfloat16, and no worse


def test_adapters_are_swapped_in_and_every_step_is_from_the_newest(run, tmp_path):
    result = run(tmp_path, *STEPS, "model.tuning=lora", "engine.sync=adapter", "update.lr=1e-3")
    assert result.returncode == 0, result.stderr
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    assert len(lines) == 4
    assert max(line["logprob_gap_mean"] for line in lines) < 1e-5
    assert [line["kept_projection"] for line in lines] == [None] * 4


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        pytest.param(("model.tuning=lora", "engine.sync=adapter"), None, id="adapters"),
        pytest.param(
            ("hardware.shard=true",),
            pytest.approx(1.0, abs=1e-3),
            id="spread weights",
            marks=BESIDE_ENGINES,
        ),
    ],
)
def test_each_process_of_a_run_has_an_engine_that_follows(words, kept, tmp_path):
    """Whether one process or two: the same prompts, and what both generate from is the policy."""
    result = run_afresh(tmp_path, *STEPS, *words, "hardware.processes=2", "update.lr=1e-3")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    assert len(lines) == 4
    assert max(line["logprob_gap_mean"] for line in lines) < 1e-5
    assert [line["kept_projection"] for line in lines] == [kept] * 4


@pytest.mark.realdata
def test_the_llm_trains_on_real_gsm8k(tmp_path, home):
    data = Path(os.environ["PODS_REALDATA"]) / "gsm8k"
    result = run_afresh(
        tmp_path, "engine=vllm", "task=gsm8k", f"task.path={data}", "model=smollm2_135m",
        "nm.n=8", "nm.m=4", "budget.max_steps=2", "evaluation.questions=4",
        "evaluation.repeats=2", "sampling.max_completion_tokens=64", "tracking=none",
        "update.lr=1e-3",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = read_lines(run_folder(tmp_path) / "metrics.jsonl")
    assert len(lines) == 2
    assert all(line["generated_tokens"] > 50 for line in lines)
    assert max(line["grad_norm"] for line in lines) > 0
    assert max(line["logprob_gap"] for line in lines) < 1e-3
    assert max(line["logprob_gap_mean"] for line in lines) < 1e-5
    assert min(line["kept_projection"] for line in lines) > 0.99
    for step in (0, 2):
        assert len(read_lines(run_folder(tmp_path) / "evaluations" / f"step-{step:06d}.jsonl")) == 8
