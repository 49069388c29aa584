"""Checks that hold on a GPU (`pytest -m gpu`), and the script that makes them, here on a CPU."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import gpu_checks  # knows where the benchmarks are
import gpu_update_checks
import pytest
import torch
from compose import ROOT
from policies import trained

from pods.config.price_card import read_card
from pods.tasks.load import load as load_task

import gpu  # isort: skip
import gpu_config  # isort: skip
from gpu_step import random_policy, random_prompts  # isort: skip
from step import make_engine, make_loop, steps  # isort: skip

ABSENT = ["datasets", "pandas", "scipy", "sklearn", "wandb", "matplotlib", "orjson", "gguf",
          "pytest", "vllm"]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("check", [*gpu_checks.CHECKS, *gpu_update_checks.CHECKS])
def test_on_a_card(check):
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    check("cuda")


PARTS = """
import sys, time, types

def hangs(options, deadline):
    yield {"before": 1}
    while True:
        time.sleep(1)

def breaks(options, deadline):
    yield {"before": 2}
    raise RuntimeError("an error of the card")

def lacks(options, deadline):
    from gpu_config import Skipped
    raise Skipped("there is no vLLM")
    yield

for name, part in (("probe", breaks), ("step", hangs), ("vllm", lacks)):
    sys.modules[f"gpu_{name}"] = module = types.ModuleType(f"gpu_{name}")
    setattr(module, name, part)
"""


def test_a_part_that_fails_hangs_or_lacks_something_costs_no_other(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(PARTS)  # so that no part needs torch
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    monkeypatch.setitem(gpu.SECONDS, "step", 5)
    toy = ["--toy", "--device", "cpu", "--out", str(tmp_path / "out"), "--only"]
    assert gpu.main([*toy, "probe", "step", "vllm"]) == 1
    parts = json.loads((tmp_path / "out" / "results.json").read_text())["parts"]
    statuses = {name: part["status"] for name, part in parts.items()}
    assert statuses == {"probe": "failed", "step": "timeout", "vllm": "skipped"}
    assert parts["probe"]["result"] == {"before": 2}
    assert parts["probe"]["error"].endswith("RuntimeError: an error of the card\n")
    assert parts["step"]["result"] == {"before": 1}  # what it had measured is kept
    assert parts["vllm"]["error"] == "there is no vLLM"
    assert sorted(os.listdir(tmp_path / "out")) == ["logs", "results.json"]


def write_card(tmp_path, many=4.0, few_seconds=2.3):
    """Write the results of two calls, and the card from them."""
    steps = {"16 to 16": {"seconds": few_seconds, "generate": 1.0, "completion_tokens": [512]},
             "64 to 16": {"seconds": 5.3, "generate": many}}  # fmt: skip
    step = {"steps": {}, "update": {"16 x 512": {"seconds": 0.5}, "64 x 512": {"seconds": 2.9}}}
    for name, part in (("step", step), ("vllm", {"steps": steps})):  # of two calls
        (tmp_path / name).mkdir(exist_ok=True)
        found = {"date": "2026-11-28", "machine": {"gpus": ["H100"]}, "shape": "qwen2.5-3b",
                 "parts": {name: {"status": "done", "result": part}}}  # fmt: skip
        (tmp_path / name / "results.json").write_text(json.dumps(found))
    assert gpu.main(["--out", str(tmp_path), "--card", str(tmp_path / "card.yaml")]) == 0


def test_a_card_has_the_prices_of_one_more_rollout_and_of_training_on_one(tmp_path):
    """By hand: (4 - 1) / 48 to draw, (2.9 - 0.5) / 48 to train on; left of 2.3 is 0.5."""
    write_card(tmp_path)
    found = read_card(str(tmp_path / "card.yaml"))
    prices = (found.per_generated_rollout, found.per_trained_rollout, found.per_step)
    assert prices == pytest.approx((0.0625, 0.05, 0.5)) and found.unit == "s"
    text = "one H100, 2026-11-28, qwen2.5-3b, part vllm, all completions of 512 tokens"
    assert text in found.fitted_to and "more than 64 rollouts" in found.does_not_cover


@pytest.mark.parametrize(
    ("changes", "price"),
    [({"many": 0.9}, "per_generated_rollout"), ({"few_seconds": 1.7}, "per_step")],
)
def test_a_price_that_the_numbers_do_not_identify_is_named(tmp_path, changes, price):
    with pytest.raises(SystemExit, match=f"16 and 64 .* do not identify {price}, which would be -"):
        write_card(tmp_path, **changes)
    assert not (tmp_path / "card.yaml").exists()


def toy_config(**changes):
    options = gpu.arguments(["--toy", "--device", "cpu", "--out", "nowhere"])
    return gpu_config.shape_config(options, changes)


def test_every_completion_of_the_real_loop_runs_to_the_limit():
    policy, config = random_policy(toy_config(**{"nm.n": 4}))
    task = replace(load_task(config.task), train=load_task(config.task).train[:2])
    prompts = random_prompts(policy, 2, 12)
    before = [p.detach().clone() for p in trained(policy)]
    loop = make_loop(policy, config, make_engine(policy, config), task, prompts)
    rows = list(islice(steps(loop, lambda: True), 2))
    assert [row["completion_tokens"] for row in rows] == [[16], [16]]
    assert [row["prompt_tokens"] for row in rows] == [[12], [12]]
    moved = [not torch.equal(b, p) for b, p in zip(before, trained(policy), strict=True)]
    assert all(moved), "advantages were all 0"


def test_random_weights_have_the_shape_that_was_asked_for():
    """Tied: 336 x 128 once; 2 layers of 4 x 32 and 2 x 32 heads, 192 wide; norms."""
    policy, _ = random_policy(toy_config())
    frozen = sum(p.numel() for n, p in policy.model.named_parameters() if "lora" not in n)
    attention = 128 * (128 + 64 + 64) + 128 * 128
    assert frozen == 336 * 128 + 2 * (attention + 3 * 128 * 192 + 2 * 128) + 128
    assert policy.vocabulary == 331 and policy.stop_ids == []  # the output layer is padded


@pytest.mark.slow
def test_the_whole_script_at_toy_size_without_what_a_bare_machine_lacks(tmp_path):
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
    expected = dict.fromkeys(gpu.SECONDS, "done") | {"vllm": "skipped"}
    assert {name: part["status"] for name, part in found.items()} == expected, (
        done.stdout, found)  # fmt: skip
    assert done.returncode == 0
    assert sorted(os.listdir(out)) == ["logs", "results.json"]
    assert set(found["checks"]["result"]) == {check.__name__ for check in gpu_checks.CHECKS}
    for size in ("4 to 4", "16 to 4"):
        assert found["step"]["result"]["steps"][size]["completion_tokens"] == [16]


@pytest.mark.vllm
def test_what_is_asked_of_vllm_on_a_card_holds_on_a_cpu(tmp_path):
    toy = ["--toy", "--device", "cpu", "--out", str(tmp_path), "--only", "vllm"]
    assert gpu.main(toy) == 0
    [part] = json.loads((tmp_path / "results.json").read_text())["parts"].values()
    assert part["result"]["checks"]["a_hundred_syncs_leave_all_right"]["syncs"] == 100
    assert part["result"]["steps"]["16 to 4"]["completion_tokens"] == [16]
