"""The smallest useful training of a real LLM on the real GSM8K.

On one thread: two wait for each other where another worker is busy.
"""

import json
import math
import os
from pathlib import Path

from pods.runs.files import read_lines

ON_GSM8K = ("task=gsm8k", "model=smollm2_135m", "nm.n=8", "nm.m=4", "budget.max_steps=2",
            "evaluation.questions=2", "evaluation.repeats=2", "sampling.max_completion_tokens=64",
            "tracking=none", "hardware.threads=1")  # fmt: skip


def lines_of(tmp_path, run, *words):
    """Train the LLM for two steps on the real GSM8K; return the lines of its metrics."""
    data = Path(os.environ["PODS_REALDATA"]) / "gsm8k"
    result = run(*ON_GSM8K, f"task.path={data}", *words)
    assert result.returncode == 0, result.stderr
    [folder] = (tmp_path / "runs").glob("*/smollm2_135m-gsm8k/max_variance-n8-m4/seed0-*")
    lines = read_lines(folder / "metrics.jsonl")
    assert len(lines) == 2 and max(line["grad_norm"] for line in lines) > 0
    assert all(math.isfinite(line["loss"]) and line["generated_tokens"] > 50 for line in lines)
    for step in (0, 2):
        assert len(read_lines(folder / "evaluations" / f"step-{step:06d}.jsonl")) == 4
    policy = folder / "checkpoints" / "step-000002" / "policy"
    assert (policy / "adapter_model.safetensors").exists()
    assert json.loads((policy / "adapter_config.json").read_text())["r"] == 64
    return lines
