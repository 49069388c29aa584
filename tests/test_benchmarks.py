"""The benchmarks: equal lengths, refusal of unequal sides, correct fits, modes that fail."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
from compose import composed

FOLDER = Path(__file__).parents[1] / "experiments" / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_completion_of_the_real_loop_runs_to_the_limit(benchmark):
    from pods.policy.policy import load

    step = benchmark("step")
    config = step.configured(["sampling.max_completion_tokens=24"])  # chains end long before
    policy = step.endless(load(config))
    task, prompts = step.pool(config, policy.tokenizer)
    before = [p.detach().clone() for p in policy.model.parameters()]
    loop = step.make_loop(policy, config, step.make_engine(policy, config), task, prompts)
    lines = iter(["\n", "\n", ""])
    rows = list(step.steps(loop, lambda: next(lines)))
    assert [row["completion_tokens"] for row in rows] == [[24], [24]]
    first = [prompts[task.train.index(p)] for p in step.order(config, task.train, 2)]
    assert [row["prompt_tokens"] for row in rows] == [[len(prompt)] for prompt in first]
    assert not any(map(torch.equal, before, policy.model.parameters())), "advantages were all 0"


def test_sides_that_did_not_do_the_same_are_refused(benchmark):
    against = benchmark("against_trl")

    def side(prompt, tokens):
        return [{"prompt_tokens": [prompt], "completion_tokens": tokens}]

    against._check_equal_work({"trl": side(7, [64]), "vllm": side(7, [64])}, 64)
    with pytest.raises(SystemExit, match="prompts differ"):
        against._check_equal_work({"trl": side(7, [64]), "vllm": side(8, [64])}, 64)
    with pytest.raises(SystemExit, match="not all completions have 64"):
        against._check_equal_work({"trl": side(7, [64]), "vllm": side(7, [12, 64])}, 64)


def test_growth_recovers_a_known_cost(benchmark):
    growth = benchmark("growth")
    cells = [
        growth.Cell(n, m, tokens, (0.1 + 0.002 * n * tokens,) * 3, (0.003 * m * tokens**2,) * 3)
        for n, m, tokens in growth.grid([16, 32, 64], [4, 16, 64], [8, 16])
    ]
    assert len(cells) == 7 * 2  # no m above its n
    fits = growth.judge(cells)
    at = fits["at_tokens"]["8"]
    assert at["fits"]["generate"] == pytest.approx({"fixed": 0.1, "generated": 0.016, "r2": 1})
    assert at["fits"]["step"] == pytest.approx(
        {"fixed": 0.1, "generated": 0.016, "kept": 0.192, "r2": 1}
    )
    assert abs(at["largest_residual_percent"]) < 1e-6
    assert fits["by_tokens"]["generate"] == pytest.approx(
        {"fixed": 0.1, "generated_tokens": 0.002, "r2": 1}
    )
    assert fits["by_tokens"]["update"]["r2"] < 0.99  # quadratic: no line in tokens
    assert fits["growth_in_tokens"]["update"]["m=4"]["exponent"] == pytest.approx(2)


def test_the_large_study_is_complete(benchmark, tmp_path, capsys):
    from pods.cli.main import main

    benchmark("large_study").write_study(tmp_path, 20)
    assert main(["status", "large", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(" done ") == 20
    assert main(["aggregate", "large", "--runs-dir", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12  # header, ten series, where they are


def test_calibrate_measures_every_way_to_sync_once(benchmark):
    modes = benchmark("calibrate").modes
    assert [" ".join(mode) for mode in modes(composed())] == [
        "engine=vllm engine.sync=merged engine.dtype=float32",
        "engine=vllm engine.sync=merged engine.dtype=bfloat16",
        "engine=transformers",
    ]
    lora = modes(composed("hardware=h200", "model=qwen2_5_3b", "dry_run=true"))
    assert [mode[1:] for mode in lora] == [
        ["engine.sync=merged", "engine.dtype=bfloat16"],
        ["engine.sync=merged", "engine.dtype=float32"],
        ["engine.sync=adapter", "engine.dtype=bfloat16"],
        [],
    ]


def test_calibrate_names_the_fastest_mode_that_a_run_would_accept(benchmark):
    verdict = benchmark("calibrate").verdict
    rows = [
        {"mode": "coarse", "tokens_per_second": 900.0, "acceptable": False},
        {"mode": "hung", "error": "over 300 s"},
        {"mode": "slow", "tokens_per_second": 400.0, "acceptable": True},
        {"mode": "fast", "tokens_per_second": 500.0, "acceptable": True},
    ]
    assert verdict(rows).endswith(": fast")
    assert verdict(rows[:2]).startswith("no mode keeps")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exec sleep 60", "over 0.5 s"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("echo noise; echo why >&2; exit 3", "exit code 3: why"),
    ],
)
def test_calibrate_reports_a_mode_that_dies_or_hangs(
    benchmark, tmp_path, monkeypatch, script, error
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert benchmark("calibrate").measure_in_process([], 0.5) == {"error": error}


CALIBRATED = ("nm.n=8", "nm.m=4", "sampling.max_completion_tokens=16")


def test_calibrate_finds_no_gap_where_the_engine_shares_the_policys_weights(benchmark):
    row = benchmark("calibrate").measure_in_process(["engine=transformers", *CALIBRATED])
    assert (row["sync_seconds"], row["kept"], row["acceptable"]) == (None, None, True)
    assert row["gap_mean"] <= row["gap_max"] < 1e-4 and row["tokens_per_second"] > 10


@pytest.mark.vllm
def test_calibrate_tells_an_exact_merge_from_a_coarse_one_and_an_adapter(benchmark):
    calibrate = benchmark("calibrate")
    config = composed("engine=vllm", "model.tuning=lora")
    exact, coarse, adapter, _ = (
        calibrate.measure_in_process(["model.tuning=lora", *CALIBRATED, *mode])
        for mode in calibrate.modes(config)
    )
    assert exact["kept"] == pytest.approx(1.0, abs=1e-5) and exact["gap_mean"] < 1e-5
    assert coarse["gap_mean"] > 1e-4
    assert abs(coarse["kept"] - 1) > 1e-5  # float32 weights lie off its grid: lost or doubled
    assert adapter["kept"] is None and adapter["gap_mean"] < 1e-5
    bfloat16 = ["engine=vllm", "engine.sync=merged", "engine.dtype=bfloat16"]
    weights = ["model.tuning=lora", "model.dtype=bfloat16"]
    row = calibrate.measure_in_process([*weights, *CALIBRATED, *bfloat16])
    assert row["kept"] < config.engine.min_kept  # changes smaller than its grid are lost
