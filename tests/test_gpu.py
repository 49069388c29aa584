"""Checks that hold on a GPU (`pytest -m gpu`) and a CPU (`-m slow`), and the GPU script itself."""

import json
import os
import subprocess
import sys

import gpu_checks  # knows where the benchmarks are
import gpu_update_checks
import pytest
import torch
import yaml
from compose import ROOT

from pods.config.compose import compose

import gpu  # isort: skip
import gpu_config  # isort: skip
from update import Bare, random_rollouts  # isort: skip

ABSENT = ["hydra", "omegaconf", "antlr4", "datasets", "pandas", "scipy", "sklearn", "wandb",
          "orjson", "matplotlib", "rich", "gguf", "pytest", "vllm"]  # fmt: skip


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("check", gpu_checks.CHECKS, ids=lambda check: check.__name__)
def test_on_the_device(check, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    check(device)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
@pytest.mark.parametrize("check", gpu_update_checks.CHECKS, ids=lambda check: check.__name__)
def test_kernels_of_the_update_on_a_card(check):
    check("cuda")


@pytest.mark.parametrize("name", gpu_config.OVERRIDES)
def test_the_resolved_config_is_what_its_words_give(name):
    values = yaml.safe_load(gpu_config.FILE.read_text())[name]
    assert values == compose(gpu_config.OVERRIDES[name]), (
        "python experiments/benchmarks/gpu_config.py"
    )


def parts(folder):
    (folder / "parts").mkdir()
    return folder


def test_a_part_that_does_not_end_is_killed_and_one_that_fails_says_why(tmp_path):
    toy = ["--toy", "--device", "cpu", "--out", str(parts(tmp_path))]
    hung = gpu.run("checks", "transformers", toy, tmp_path, 0.3)
    assert hung["status"] == "timeout" and hung["seconds"] < 30 and hung["result"] is None
    wrong = gpu.run("checks", "transformers", [*toy, "--device", "none"], tmp_path, 300)
    assert wrong["status"] == "failed" and "invalid choice: 'none'" in wrong["error"]


def test_what_fails_is_written_down_and_the_others_go_on(tmp_path, monkeypatch):
    outcomes = iter(["failed", "timeout", "done"])

    def run(part, engine, words, out, seconds):
        written = json.loads((out / "results.json").read_text())["parts"] if part != "step" else {}
        return {"status": next(outcomes), "seconds": 1.0, "error": "why",
                "result": {"steps": [], "before": list(written)}}  # fmt: skip

    monkeypatch.setattr(gpu, "run", run)
    words = ["--toy", "--device", "cpu", "--out", str(tmp_path), "--only"]
    assert gpu.main([*words, "step", "update", "pods", "rollouts"]) == 1
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["parts"]["pods"] == {
        "status": "done", "seconds": 1.0, "error": "why",
        "result": {"steps": [], "before": ["step", "update"]},
    }  # fmt: skip
    assert found["parts"]["rollouts"]["status"] == "skipped"  # without vLLM, that is no failure
    assert gpu.main([*words, "rollouts"]) == 0


def test_the_bare_side_of_the_update_has_as_many_tokens_and_predictions():
    """120 + 16 x 64 = 1,144 tokens, in rows of some 120 + 64: 6 of 190, each predicts 1024 / 6."""
    rollouts = random_rollouts(range(120), [64] * 16, vocabulary=1000)
    bare = Bare.from_rollouts(rollouts, torch.device("cpu"))
    assert bare.ids.shape == (6, 190) and bare.ids[0, :120].tolist() == list(range(120))
    assert bare.scored == 171


@pytest.mark.slow
def test_the_whole_script_at_toy_size_with_torch_transformers_and_peft_alone(tmp_path):
    refuse = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n"
    (tmp_path / "sitecustomize.py").write_text(refuse)
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "experiments" / "benchmarks" / "gpu.py")]
    done = subprocess.run(
        [*command, "--device", "cpu", "--toy", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads((out / "results.json").read_text())
    left_out = {"step_vllm": "skipped", "rollouts": "skipped"}
    assert {name: part["status"] for name, part in found["parts"].items()} == (
        dict.fromkeys(gpu.SECONDS, "done") | left_out
    ), done.stdout
    assert done.returncode == 0
    made = found["parts"]["figure"]["result"]["made"]
    assert made == "arms.csv; no figure: matplotlib is not installed"
    for arm in ("grpo", "pods"):
        result = found["parts"][arm]["result"]
        assert result["budget_reached"] and result["after"]["questions"] == 4
        assert {row["step"] for row in result["steps"]} == set(range(1, len(result["steps"]) + 1))
