"""Checks that hold on a GPU (`pytest -m gpu`) and a CPU (`-m slow`), and the GPU script itself."""

import json
import os
import subprocess
import sys
import tarfile
import time
from contextlib import suppress

import gpu_checks  # knows where the benchmarks are
import gpu_update_checks
import pytest
import torch
import yaml
from compose import ROOT

from pods.config.compose import compose

import gpu  # isort: skip
import gpu_config  # isort: skip
from gpu_model import random_policy  # isort: skip
from pack_wheels import pack  # isort: skip
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


PARTS = """
import sys, time, types
fake = types.ModuleType("gpu_parts")

def counts(options, deadline):
    number = 0
    while time.monotonic() < deadline:
        number += 1
        yield {"number": number, "filling": "x" * 100_000}

def hangs(options, deadline):
    yield {"before": 1}
    while True:
        time.sleep(1)

def breaks(options, deadline):
    yield {"before": 2}
    raise RuntimeError("an error of the card")

def works(options, deadline):
    yield {"all": 3}

def lacks(options, deadline):
    from gpu_config import Skipped
    raise Skipped("there is no vLLM")
    yield

fake.PARTS = {"probe": breaks, "checks": hangs, "step": works, "vllm": lacks, "growth": counts}
sys.modules["gpu_parts"] = fake
"""


@pytest.fixture
def fake_parts(tmp_path, monkeypatch):
    """Let gpu.py run parts that need no torch."""
    (tmp_path / "sitecustomize.py").write_text(PARTS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    return [sys.executable, str(ROOT / "experiments" / "benchmarks" / "gpu.py"), "--toy",
            "--device", "cpu", "--out", str(tmp_path / "out"), "--only"]  # fmt: skip


def results(folder):
    return json.loads((folder / "out" / "results.json").read_text())["parts"]


def test_a_part_that_fails_hangs_or_lacks_something_costs_no_other(fake_parts, tmp_path):
    limits = ["--limit", "checks=1"]
    ended = subprocess.run([*fake_parts, "probe", "checks", "step", "vllm", *limits], check=False)
    parts = results(tmp_path)
    assert ended.returncode == 1
    assert {name: part["status"] for name, part in parts.items()} == {
        "probe": "failed", "checks": "timeout", "step": "done", "vllm": "skipped",
    }  # fmt: skip
    assert parts["probe"]["result"] == {"before": 2}
    assert parts["probe"]["error"].endswith("RuntimeError: an error of the card\n")
    assert parts["checks"]["result"] == {"before": 1}  # what it had measured is kept
    assert parts["step"]["result"] == {"all": 3}
    assert parts["vllm"]["error"] == "there is no vLLM"
    assert sorted(os.listdir(tmp_path / "out")) == ["logs.tar.gz", "results.json"]
    table = gpu.report(json.loads((tmp_path / "out" / "results.json").read_text()))
    assert "| `probe` | failed: RuntimeError: an error of the card |" in table


def test_killed_in_the_middle_the_results_so_far_are_whole(fake_parts, tmp_path):
    with subprocess.Popen([*fake_parts, "step", "growth"]) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                if results(tmp_path).get("growth", {}).get("result", {}).get("number", 0) > 20:
                    break
        process.kill()
    parts = results(tmp_path)
    assert parts["step"]["status"] == "done"
    assert parts["growth"]["status"] == "running"
    assert parts["growth"]["result"]["filling"] == "x" * 100_000
    before = parts["growth"]["result"]["number"]
    time.sleep(0.2)
    assert results(tmp_path)["growth"]["result"]["number"] <= before + 1  # its child died with it
    left = set(os.listdir(tmp_path / "out"))
    assert left <= {"results.json", "results.tmp", "logs.tar.gz"}


def test_limits_and_folders_that_make_no_sense_are_refused(capsys):
    for words, why in (
        (["--limit", "sleep=3"], "sleep: must be one of probe, checks"),
        (["--model", "somewhere"], "--model and --data must be given together"),
        (["--shape", "qwen"], "invalid choice: 'qwen'"),
    ):
        with pytest.raises(SystemExit):
            gpu.main(["--out", "nowhere", *words])
        assert why in capsys.readouterr().err


def test_the_bare_side_of_the_update_has_as_many_tokens_and_predictions():
    """120 + 16 x 64 = 1,144 tokens, in rows of some 120 + 64: 6 of 190, each predicts 1024 / 6."""
    rollouts = random_rollouts(range(120), [64] * 16, vocabulary=1000)
    bare = Bare.from_rollouts(rollouts, torch.device("cpu"))
    assert bare.ids.shape == (6, 190) and bare.ids[0, :120].tolist() == list(range(120))
    assert bare.scored == 171


def test_an_archive_that_is_too_large_for_the_machine_is_refused(tmp_path):
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(os.urandom(5000))
    archive = tmp_path / "all.tar.xz"
    assert 5000 < pack(archive, tmp_path, ["mathgrade"]) == archive.stat().st_size
    with tarfile.open(archive) as file:
        names = file.getnames()
    assert "wheels/a-1-py3-none-any.whl" in names and "tree/mathgrade/__init__.py" in names
    assert not [name for name in names if name.endswith((".pyc", ".so"))]
    with pytest.raises(ValueError, match="must be at most 5,000 bytes, and would have"):
        pack(archive, tmp_path, [], limit=5000)
    assert not archive.exists()
    with pytest.raises(ValueError, match="--tree=nothing: must be a package that is installed"):
        pack(archive, tmp_path, ["nothing"])


def test_random_weights_have_the_shape_that_the_plan_knows(monkeypatch):
    """Tied: 336 x 128 once; 2 layers of 4 x 32 and 2 x 32 heads, 192 wide; norms."""
    options = gpu.arguments(["--toy", "--device", "cpu", "--out", "nowhere"])
    monkeypatch.setitem(gpu.KNOWN, options.shape, gpu_config.TOY_SIZES)
    policy, _ = random_policy(gpu_config.shape_config(options, {}))
    frozen = sum(p.numel() for n, p in policy.model.named_parameters() if "lora" not in n)
    attention = 128 * (128 + 64 + 64) + 128 * 128
    assert frozen == 336 * 128 + 2 * (attention + 3 * 128 * 192 + 2 * 128) + 128
    assert policy.vocabulary == 331 and policy.stop_ids == []  # the output layer is padded


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
    found = json.loads((out / "results.json").read_text())["parts"]
    left_out = {"vllm": "skipped", "product": "skipped"}
    assert {name: part["status"] for name, part in found.items()} == (
        dict.fromkeys(gpu.SECONDS, "done") | left_out
    ), done.stdout
    assert done.returncode == 0
    assert sorted(os.listdir(out)) == ["logs.tar.gz", "results.json"]  # without matplotlib
    assert set(found["checks"]["result"]) == {check.__name__ for check in gpu_checks.CHECKS}
    for size in ("4 to 4", "16 to 4"):
        assert found["step"]["result"]["steps"][size]["completion_tokens"] == [16]
    arms = found["arms"]["result"]["arms"]
    assert set(arms) == {"grpo", "grpo_ga", "pods", "random"}
    for arm in arms.values():
        assert arm["budget_reached"] and arm["after"]["questions"] == 4
        assert {row["step"] for row in arm["steps"]} == set(range(1, len(arm["steps"]) + 1))


@pytest.mark.vllm
def test_what_is_asked_of_vllm_on_a_card_holds_on_a_cpu(tmp_path):
    toy = ["--toy", "--device", "cpu", "--out", str(tmp_path), "--only", "vllm"]
    assert gpu.main(toy) == 0
    [part] = json.loads((tmp_path / "results.json").read_text())["parts"].values()
    assert part["result"]["checks"]["a_hundred_syncs_leave_all_right"]["syncs"] == 100
    assert part["result"]["steps"]["16 to 4"]["completion_tokens"] == [16]
