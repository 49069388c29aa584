"""The benchmarks that compare steps: lengths are held, unlike sides are refused, fits are right."""

import importlib
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "experiments" / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_completion_of_the_real_loop_runs_to_the_limit(benchmark):
    from pods.policy.load import load

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

    against._alike({"trl": side(7, [64]), "vllm": side(7, [64])}, 64)
    with pytest.raises(SystemExit, match="prompts differ"):
        against._alike({"trl": side(7, [64]), "vllm": side(8, [64])}, 64)
    with pytest.raises(SystemExit, match="not all completions have 64"):
        against._alike({"trl": side(7, [64]), "vllm": side(7, [12, 64])}, 64)


def test_a_growth_that_is_known_is_found_again(benchmark):
    growth = benchmark("growth")
    cells = [
        growth.Cell(n, m, tokens, (0.1 + 0.002 * n * tokens,) * 3, (0.003 * m * tokens**2,) * 3)
        for n, m, tokens in growth.grid([16, 32, 64], [4, 16, 64], [8, 16])
    ]
    assert len(cells) == 7 * 2  # no m above its n
    found = growth.judge(cells)
    at = found["at_tokens"]["8"]
    assert at["fits"]["generate"] == pytest.approx({"fixed": 0.1, "generated": 0.016, "r2": 1})
    assert at["fits"]["step"] == pytest.approx(
        {"fixed": 0.1, "generated": 0.016, "kept": 0.192, "r2": 1}
    )
    assert abs(at["largest_residual_percent"]) < 1e-6
    assert found["by_tokens"]["generate"] == pytest.approx(
        {"fixed": 0.1, "generated_tokens": 0.002, "r2": 1}
    )
    assert found["by_tokens"]["update"]["r2"] < 0.99  # quadratic: no line in tokens
    assert found["growth_in_tokens"]["update"]["m=4"]["exponent"] == pytest.approx(2)


def test_the_study_of_the_benchmark_is_whole(benchmark, tmp_path, capsys):
    from pods.cli import main

    benchmark("large_study").write_study(tmp_path, 20)
    assert main(["status", "large", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(" done ") == 20
    assert main(["aggregate", "large", "--runs-dir", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12  # header, ten series, where they are
