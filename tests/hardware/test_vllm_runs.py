"""Full runs on vLLM: killed, broken, with stale weights, and on the real LLM."""

import json
import os
import subprocess
import sys
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace

import forking
import pytest
from compose import ROOT
from real_gsm8k import lines_of
from running import SHORT, killing, run_folder, science_of

from pods.runs.files import read_lines

pytestmark = pytest.mark.vllm
STEPS = ("engine=vllm", "sampler.rule=faults:rule", "nm.n=8", "nm.m=4", *SHORT)
BESIDE_ENGINES = pytest.mark.xdist_group("vllm engines")  # so that two workers take equally long
TIMEOUT = 1800.0  # seconds of a run on a busy machine


def run_afresh(tmp_path, *arguments):
    """Start a run as a user does."""
    return subprocess.run(
        [sys.executable, str(ROOT / "src" / "run.py"), *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'helpers'}:{ROOT / 'src'}"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def run():
    """Start a run in a fork, which saves the time of the imports."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload(list(forking.ON_VLLM))

    def run(folder, *arguments, **environment):
        process = forks.Process(
            target=forking.run, args=(folder, arguments, {**os.environ, **environment})
        )
        process.start()
        process.join(TIMEOUT)
        process.kill()
        process.join()
        out, err = ((folder / name).read_text() for name in ("out", "err"))
        return SimpleNamespace(returncode=process.exitcode, stdout=out, stderr=err)

    return run


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The results of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    result = run_afresh(folder, *STEPS)
    assert result.returncode == 0, result.stderr
    return science_of(run_folder(folder))


def status(tmp_path):
    return json.loads((run_folder(tmp_path) / "status.json").read_text())


def metrics(tmp_path):
    return read_lines(run_folder(tmp_path) / "metrics.jsonl")


@BESIDE_ENGINES
def test_runs_that_are_killed_anywhere_end_in_the_same_bytes(tmp_path, request, capsys):
    wanted = request.config.getoption("--kills")
    report = killing("vllm", tmp_path, wanted, 0)
    kills = report["kills"]
    with capsys.disabled():
        print(f"\n{sum(kills.values())} kills in {report['runs']} runs: {kills}")
    assert report["differences"] == []
    assert sum(kills.values()) >= wanted and len(kills) == 5


@pytest.mark.parametrize(("fault", "message"), [("raise", "injected"), ("hang", "no heartbeat")])
def test_an_engine_that_breaks_or_hangs_ends_the_process_and_the_same_command_resumes(
    run, uninterrupted, tmp_path, fault, message
):
    limit = ["watchdog_seconds=8"] if fault == "hang" else []
    broken = run(tmp_path, *STEPS, *limit, FAULT=fault)
    assert broken.returncode == 75, broken.stderr
    assert message in broken.stderr
    assert status(tmp_path)["state"] == "preempted"
    assert message in status(tmp_path)["error"]
    result = run(tmp_path, *STEPS)
    assert result.returncode == 0, result.stderr
    assert science_of(run_folder(tmp_path)) == uninterrupted


@pytest.mark.parametrize(("lag", "column"), [(0, "logprob_gap_mean"), (1, "engine_gap")])
def test_an_engine_that_goes_stale_raises_an_alarm_and_soon_ends_the_run(
    run, tmp_path, lag, column
):
    words = ("budget.max_steps=20", "update.lr=1e-3", f"engine.lag={lag}", "update.importance=off",
             "sampling.top_k=5", "sampling.temperature=0.9")  # fmt: skip
    result = run(tmp_path, *STEPS, *words, FAULT="stale")
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"alarm: step {2 + lag}: the log-probs of engine and trainer differ by" in result.stdout
    failed = f"step {4 + lag}, like the 2 steps before it: the log-probs of"
    assert failed in status(tmp_path)["error"]
    gaps = [line[column] for line in metrics(tmp_path)]
    right, stale = gaps[: 1 + lag], gaps[1 + lag :]
    assert len(stale) == 3 and max(right) < 1e-5 and stale[0] > 1e-4


def test_an_adapter_that_never_reaches_the_engine_raises_an_alarm(run, tmp_path):
    """At a small learning rate the gap stays below its bound for long."""
    words = ("budget.max_steps=21", "model.tuning=lora", "update.lr=1e-7", "nm.n=16")
    result = run(tmp_path, *STEPS, *words, FAULT="stale")
    assert result.returncode == 0, result.stdout + result.stderr
    [alarm] = status(tmp_path)["alarms"]
    assert alarm == "training the adapter has not changed the engine's log-probs, 20 steps in a row"
    assert [line["engine_change"] for line in metrics(tmp_path)] == [0.0] * 21
    (right := tmp_path / "right").mkdir()
    assert run(right, *STEPS, *words).returncode == 0
    assert status(right)["alarms"] == []
    assert metrics(right)[-1].get("engine_change") is None


def test_a_merge_that_rounds_the_change_away_ends_the_run_unless_it_is_corrected(run, tmp_path):
    coarse = (*STEPS, "model.tuning=lora", "model.dtype=bfloat16", "engine.dtype=bfloat16",
              "update.lr=1e-5")  # fmt: skip
    result = run(tmp_path, *coarse)
    assert result.returncode == 1
    assert "step 1: merging the policy into the engine's weights kept" in status(tmp_path)["error"]
    (corrected := tmp_path / "corrected").mkdir()
    result = run(corrected, *coarse, "update.importance=token_truncate")
    assert result.returncode == 0, result.stderr
    lines = metrics(corrected)
    assert 0 < max(line["kept_projection"] for line in lines) < 0.9
    assert max(line["logprob_gap_mean"] for line in lines) > 1e-4  # bfloat16, and no worse


def test_adapters_are_swapped_in_and_every_step_uses_the_newest(run, tmp_path):
    result = run(tmp_path, *STEPS, "model.tuning=lora", "engine.sync=adapter", "update.lr=1e-3")
    assert result.returncode == 0, result.stderr
    lines = metrics(tmp_path)
    assert len(lines) == 4
    assert max(line["logprob_gap_mean"] for line in lines) < 3e-5  # 0.9 to 1.2e-5 by processor
    assert [line["kept_projection"] for line in lines] == [None] * 4
    recorded = (run_folder(tmp_path) / "attempts" / "001" / "environment.json").read_text()
    assert json.loads(recorded)["engine"] == {
        "model_runner": "v1", "async_scheduling": False, "attention": ["CPU_ATTN"], "eager": True,
        "cuda_graphs": "NONE", "compilation": "NONE",
    }  # fmt: skip


@pytest.mark.parametrize("overrides", [
    pytest.param(("model.tuning=lora", "engine.sync=adapter"), id="adapters"),
    pytest.param(("hardware.shard=true",), id="sharded weights"),
])  # fmt: skip
@BESIDE_ENGINES
def test_each_process_of_a_run_has_an_engine_with_the_policys_weights(overrides, tmp_path):
    result = run_afresh(tmp_path, *STEPS, *overrides, "hardware.processes=2", "update.lr=1e-3")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = metrics(tmp_path)
    assert len(lines) == 4
    assert max(line["logprob_gap_mean"] for line in lines) < 3e-5  # 0.9 to 1.2e-5 by processor
    assert [line["kept_projection"] for line in lines] == [None] * 4


@pytest.mark.realdata
def test_the_llm_trains_on_real_gsm8k(tmp_path, home):
    lines = lines_of(tmp_path, partial(run_afresh, tmp_path), "engine=vllm", "update.lr=1e-3")
    assert max(line["logprob_gap"] for line in lines) < 1e-3
    assert max(line["logprob_gap_mean"] for line in lines) < 3e-5  # 0.9 to 1.2e-5 by processor
    assert min(line["kept_projection"] for line in lines) > 0.99
