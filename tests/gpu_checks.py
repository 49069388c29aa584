"""What must hold on a GPU: plain functions of a device, run by test_gpu.py and by a GPU's script.

Nothing here needs pytest or Hydra. On the CPU they hold too, so that they are known to work before
there is a card. Policies here are random, with a vocabulary so large that log-probs are chunked, or
the tiny one that ships with the package.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "experiments" / "benchmarks"))

from gpu_config import read
from transformers import LlamaConfig, LlamaForCausalLM

from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.policy import attention
from pods.policy.policy import Policy, load
from pods.policy.scoring import Context, score_all
from pods.policy.update import update
from pods.training.clock import TrainClock
from pods.types import GenerationRequest, Rollout, Sampling

VOCABULARY = 32768
PROMPT, LENGTHS = 40, (180, 240, 200, 220)  # more than the 2^24 logits that are a chunk
SIGNS = np.array([1.0, -0.5, 2.0, -1.5])
FLOAT32 = 1e-5
BFLOAT16 = 0.03  # 8 bits of mantissa, several roundings deep


class Tokens:
    """As much of a tokenizer as scoring needs."""

    pad_token_id = eos_token_id = 0

    def __len__(self) -> int:
        return VOCABULARY


class Keep(torch.optim.SGD):
    """Keeps the gradient that a step is made of."""

    gradient: Tensor

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Note the gradient, and move."""
        parts = [p.grad.flatten() for group in self.param_groups for p in group["params"]]
        self.gradient = torch.cat(parts).detach().float().cpu()
        super().step(closure)


def config_on(device: str, **changes: Any) -> Config:
    """The embedded task and model on a device; no gradient is clipped."""
    return read("chainsum", {"hardware.device": device, "update.grad_clip": 1e9, **changes})


def wide_policy(device: str, dtype: torch.dtype, frozen_head: bool) -> Policy:
    """One layer under a large vocabulary, random but always the same."""
    attention.register()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, attn_implementation=attention.NAME,
        ))  # fmt: skip
    model.get_output_embeddings().requires_grad_(not frozen_head)
    return Policy(model.to(device, dtype).eval(), Tokens(), None)  # type: ignore[arg-type]


def drawn(vocabulary: int) -> list[Rollout]:
    """Random rollouts of one prompt."""
    rng = np.random.default_rng(0)
    prompt, *completions = (rng.integers(vocabulary, size=s).tolist() for s in (PROMPT, *LENGTHS))
    return [Rollout(tuple(prompt), tuple(ids), np.zeros(len(ids), np.float32), "", False)
            for ids in completions]  # fmt: skip


def gradient(policy: Policy, config: Config, rollouts: list[Rollout]) -> Tensor:
    """The gradient of one on-policy update, flat, on the CPU; the weights do not move."""
    keep = Keep([p for p in policy.model.parameters() if p.requires_grad], lr=1.0)
    still = replace(config, update=replace(config.update, lr=1e-30))
    update(Context(policy, still), keep, rollouts, SIGNS, [len(rollouts)], 1)  # type: ignore[arg-type]
    return keep.gradient


def plain_logprobs(policy: Policy, rollout: Rollout, temperature: float) -> Tensor:
    """(T,) by log_softmax over all logits."""
    ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids], device=policy.device)
    start = len(rollout.prompt_ids)
    logits = policy.causal_lm(ids).logits[0, start - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, ids[0, start:, None])[:, 0]


def plain_gradient(policy: Policy, config: Config, rollouts: list[Rollout]) -> Tensor:
    """Of sum_i -A_i / (M |o_i|) sum_t log p, by plain autograd."""
    policy.model.zero_grad()
    for sign, rollout in zip(SIGNS, rollouts, strict=True):
        logprobs = plain_logprobs(policy, rollout, config.sampling.temperature)
        (-sign * logprobs.mean() / len(rollouts)).backward()
    found = [p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]
    policy.model.zero_grad()
    return torch.cat(found).float().cpu()


def apart(found: Tensor, expected: Tensor) -> float:
    """|found - expected| / |expected|, of norms."""
    return float((found - expected).norm() / expected.norm())


def below(value: float, bound: float, what: str) -> None:
    """Say what is not below its bound (NaN is not)."""
    if not value < bound:
        raise AssertionError(f"{what}: {value:.3g}, not below {bound:g}")


def chunked_is_plain(device: str, dtype: torch.dtype, bound: float) -> None:
    """Chunked log-probs, and the update's gradient through them, against plain float32 ones."""
    config, rollouts = config_on(device), drawn(VOCABULARY)
    for frozen_head in (True, False):
        policy, exact = (wide_policy(device, dtype, frozen_head) for _ in range(2))
        exact.model.float()  # the same weights, rounded or not
        found = torch.cat(score_all(Context(policy, config), rollouts)).cpu()
        with torch.no_grad():
            plain = [plain_logprobs(exact, r, config.sampling.temperature) for r in rollouts]
        below(apart(found, torch.cat(plain).cpu()), bound, "log-probs")
        gradients = gradient(policy, config, rollouts), plain_gradient(exact, config, rollouts)
        below(apart(*gradients), bound, f"gradient, frozen_head={frozen_head}")


def chunked_is_plain_in_float32(device: str) -> None:
    """Equal but for rounding."""
    chunked_is_plain(device, torch.float32, FLOAT32)


def chunked_is_plain_in_bfloat16(device: str) -> None:
    """Within what bfloat16 loses."""
    chunked_is_plain(device, torch.bfloat16, BFLOAT16)


def update_is_that_of_the_cpu(device: str) -> None:
    """One gradient through adapters, here and there."""
    rollouts, gradients = drawn(19), []
    for place in (device, "cpu"):
        config = config_on(place, **{"model.tuning": "lora"})
        gradients.append(gradient(load(config), config, rollouts))
    below(apart(*gradients), FLOAT32, "gradient")


def generation_has_the_trainers_logprobs(device: str) -> None:
    """The same seeds, the same tokens; each with the log-prob that the trainer gives it."""
    config = config_on(device)
    policy = load(config)
    engine = TransformersEngine(policy, 256, lambda: None)
    prompts = [tuple(policy.tokenizer.encode(q, add_special_tokens=False))
               for q in ("7+8-4+1?", "1-3?")]  # fmt: skip
    sampling = Sampling(config.sampling.temperature, 24)
    first, again = (
        engine.generate(GenerationRequest(prompts, 16, sampling, [1, 2])) for _ in range(2)
    )
    flat = [rollout for group in first for rollout in group]
    assert [r.completion_ids for r in flat] == [r.completion_ids for g in again for r in g]
    scores = torch.cat(score_all(Context(policy, config), flat)).cpu()
    drawn_at = torch.from_numpy(np.concatenate([rollout.logprobs for rollout in flat]))
    below(float((scores - drawn_at).abs().max()), 1e-4, "largest gap of a log-prob")


def the_clock_waits_for_the_device(device: str) -> None:
    """A phase lasts as long as the work that it queued; without waiting, on a GPU, far shorter."""
    on_gpu = device == "cuda"
    work = torch.randn(4096 if on_gpu else 512, 4096 if on_gpu else 512, device=device) / 64

    def charged(synchronise: Any) -> float:
        clock = TrainClock(synchronise=synchronise)
        with clock.phase("update"):
            made = work
            for _ in range(200 if on_gpu else 20):
                made = made @ work
        seconds = clock.commit().wall["update"]
        made.sum().item()
        return seconds

    wait = torch.cuda.synchronize if on_gpu else lambda: None
    charged(wait)  # the first call loads kernels
    start = time.perf_counter()
    waited = charged(wait)
    below(time.perf_counter() - start, 1.5 * waited + 0.01, "seconds in all, of a phase")
    if on_gpu:
        below(charged(lambda: None), waited / 2, "seconds of a phase that does not wait")


CHECKS = (
    chunked_is_plain_in_float32,
    chunked_is_plain_in_bfloat16,
    update_is_that_of_the_cpu,
    generation_has_the_trainers_logprobs,
    the_clock_waits_for_the_device,
)
