"""Compare the peak memory of our log-probs with log_softmax over all logits, forward and backward.

    python experiments/benchmarks/memory.py [cuda] [ROUNDS]

4 completions of 512 tokens, a vocabulary of 151,936, width 896 (Qwen2.5-0.5B's head on one small
layer), float32, the head frozen as under LoRA. The result is in bytes above the weights; on a CPU
it is resident memory. Each measurement has a fresh process, in turns. `peak` needs only torch and
transformers.
"""

import json
import os
import platform
import subprocess
import sys
from statistics import median

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pods.policy import attention
from pods.policy.logprobs import token_logprobs
from pods.policy.packing import pack
from pods.system.machine import cpu_model
from pods.training.clock import HostMemory
from pods.types import Rollout

ROWS, TOKENS, VOCABULARY, WIDTH = 4, 512, 151_936, 896
SIDES = ("ours", "plain")
ROUNDS = 3


def peak(
    side: str,
    device: str = "cpu",
    rows: int = ROWS,
    tokens: int = TOKENS,
    vocabulary: int = VOCABULARY,
    width: int = WIDTH,
) -> int:
    """Return the peak bytes above the weights during scoring and its backward pass.

    Args:
        side: ours or plain.
        device: cpu (which needs a fresh process) or cuda.
        rows: number of completions, each after a prompt of one token.
        tokens: length of each completion.
        vocabulary: size of the output layer.
        width: size of the hidden states that it reads.
    """
    model = _model(vocabulary, width).to(device)
    score = {"ours": _ours, "plain": _plain}[side]
    score(model, _ids(rows, 2)).sum().backward()  # libraries load and gradients appear
    model.zero_grad(set_to_none=False)
    ids = _ids(rows, tokens)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before, measured = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    else:
        HostMemory().reset()
        before, measured = HostMemory().peak(), HostMemory().peak
    score(model, ids).sum().backward()
    return int(measured()) - before


def _model(vocabulary: int, width: int) -> LlamaForCausalLM:
    """Build one trained layer under a large frozen output layer."""
    attention.register()
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=width, num_hidden_layers=1,
        num_attention_heads=width // 64, num_key_value_heads=2, tie_word_embeddings=True,
        attn_implementation=attention.NAME,
    )  # fmt: skip
    model = LlamaForCausalLM(config).requires_grad_(False).eval()
    model.model.layers.requires_grad_(True)
    return model


def _ids(rows: int, tokens: int) -> Tensor:
    """Return (rows, 1 + tokens) ids; the first column is equal in all rows."""
    ids = torch.arange(rows * (tokens + 1)).view(rows, tokens + 1) % 1000
    ids[:, 0] = 0
    return ids


def _ours(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    rollouts = [
        Rollout((0,), tuple(row[1:].tolist()), np.zeros(len(row) - 1, np.float32), "", False)
        for row in ids
    ]
    batch = pack(rollouts, [range(len(rollouts))])
    scores = token_logprobs(model, batch, temperature=0.9, vocabulary=model.config.vocab_size)
    return scores.logprobs


def _plain(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    ids = ids.to(model.device)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1] / 0.9
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None])


def main() -> None:
    """Measure both sides in turns, each in a process of its own, and print the ratio."""
    device = "cuda" if "cuda" in sys.argv else "cpu"
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), ROUNDS)
    peaks: dict[str, list[int]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            child = subprocess.run(
                [sys.executable, __file__, "--peak", side, device],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            peaks[side].append(int(child.stdout))
    medians = {side: median(sizes) for side, sizes in peaks.items()}
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name() if device == "cuda" else cpu_model(),
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "shape": {"rows": ROWS, "tokens": TOKENS, "vocabulary": VOCABULARY, "width": WIDTH},
                "peak_bytes_above_weights": {**medians, "rounds": peaks},
                "ours_of_plain": round(medians["ours"] / medians["plain"], 4),
                "target": 0.125,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(peak(*sys.argv[2:4]))
    else:
        main()
