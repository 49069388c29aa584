"""What must hold on a GPU: plain functions of a device, run by test_gpu.py and by a GPU's script.

Nothing here needs pytest or Hydra. On the CPU they hold too, so that they are known to work before
there is a card. Policies here are random, with a vocabulary so large that log-probs are chunked, or
the tiny one that ships with the package.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import torch
import torch.distributed as dist
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "benchmarks"))

from gpu_config import read
from transformers import LlamaConfig, LlamaForCausalLM

from pods.config.schema import Config
from pods.engines.transformers_engine import TransformersEngine
from pods.policy import attention
from pods.policy.fsdp import full_tensor, mesh_of_one
from pods.policy.optimizer import make_optimizer, restore_optimizer, save_optimizer
from pods.policy.policy import Policy, load
from pods.policy.process_group import SINGLE_PROCESS
from pods.policy.scoring import UpdateContext, score_all
from pods.policy.update import update
from pods.training.clock import TrainClock
from pods.training.preflight import preflight
from pods.training.workers import Worker
from pods.types import GenerationRequest, Prompt, Rollout, Sampling

VOCABULARY = 32768
PROMPT, LENGTHS = 40, (180, 240, 200, 220)  # more than the 2^24 logits that are a chunk
SHORT = (12, 29, 17, 23, 11)  # prompt and completions, as long as the tiny model knows them
SIGNS = np.array([1.0, -0.5, 2.0, -1.5])
FLOAT32 = 1e-5
BFLOAT16 = 0.03  # 8 bits of mantissa, several roundings deep
TWICE_BFLOAT16 = 0.1  # both sides round, or a sum has parts of both signs (test_compute_dtype.py)


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
        weights = [p for group in self.param_groups for p in group["params"]]
        parts = [full_tensor(p.grad).detach().flatten() for p in weights]
        self.gradient = torch.cat(parts).float().cpu()
        super().step(closure)


def config_on(device: str, **changes: Any) -> Config:
    """The embedded task and model on a device; no gradient is clipped."""
    return read("chainsum", {"hardware.device": device, "update.grad_clip": 1e9, **changes})


def wide_policy(device: str, dtype: torch.dtype, frozen_head: bool) -> Policy:
    """One layer under a large vocabulary, random but always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, attn_implementation=attention.NAME,
        ))  # fmt: skip
    model.get_output_embeddings().requires_grad_(not frozen_head)
    return Policy(model.to(device, dtype).eval(), Tokens(), None)  # type: ignore[arg-type]


def drawn(vocabulary: int, sizes: tuple[int, ...] = (PROMPT, *LENGTHS)) -> list[Rollout]:
    """Random rollouts of one prompt."""
    rng = np.random.default_rng(0)
    prompt, *completions = (rng.integers(vocabulary, size=size).tolist() for size in sizes)
    return [Rollout(tuple(prompt), tuple(ids), np.zeros(len(ids), np.float32), "", False)
            for ids in completions]  # fmt: skip


def gradient(policy: Policy, config: Config, rollouts: list[Rollout]) -> Tensor:
    """The gradient of one on-policy update, flat, on the CPU; the weights do not move."""
    keep = Keep([p for p in policy.model.parameters() if p.requires_grad], lr=1.0)
    still = replace(config, update=replace(config.update, lr=1e-30))
    update(UpdateContext(policy, still), keep, rollouts, SIGNS, [len(rollouts)], 1)  # type: ignore[arg-type]
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


@patch.dict("pods.policy.logprobs.CHUNK_ELEMENTS", cuda=2**24)  # so that a card has several, too
def chunked_is_plain(device: str) -> None:
    """Chunked log-probs, and the update's gradient through them, against plain float32 ones."""
    config, rollouts = config_on(device), drawn(VOCABULARY)
    for dtype, bound in ((torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)):
        for frozen_head in (True, False):
            policy, exact = (wide_policy(device, dtype, frozen_head) for _ in range(2))
            exact.model.float()  # the same weights, rounded or not
            found = torch.cat(score_all(UpdateContext(policy, config), rollouts)).cpu()
            with torch.no_grad():
                plain = [plain_logprobs(exact, r, config.sampling.temperature) for r in rollouts]
            below(apart(found, torch.cat(plain).cpu()), bound, f"log-probs in {dtype}")
            gradients = gradient(policy, config, rollouts), plain_gradient(exact, config, rollouts)
            below(apart(*gradients), bound, f"gradient in {dtype}, frozen_head={frozen_head}")


def update_is_that_of_the_cpu(device: str) -> None:
    """One gradient through adapters, here and there."""
    rollouts, gradients = drawn(19), []
    for place in (device, "cpu"):
        config = config_on(place, **{"model.tuning": "lora"})
        gradients.append(gradient(load(config), config, rollouts))
    below(apart(*gradients), 5 * FLOAT32, "gradient")  # 2e-5 on an H200


def generation_has_the_trainers_logprobs(device: str) -> None:
    """The same seeds, the same tokens; each with the log-prob that the trainer gives it."""
    for bound, words in ((1e-4, {}), (0.2, {"model.tuning": "lora", "model.dtype": "bfloat16"})):
        config = config_on(device, **words)
        policy = load(config)
        engine = TransformersEngine(policy, 256, lambda: None)
        sampling = Sampling(config.sampling.temperature, 24)
        request = GenerationRequest(prompts_of(policy), 16, sampling, [1, 2])
        first, again = (engine.generate(request) for _ in range(2))
        flat = [rollout for group in first for rollout in group]
        assert [r.completion_ids for r in flat] == [r.completion_ids for g in again for r in g]
        scores = torch.cat(score_all(UpdateContext(policy, config), flat)).cpu()
        drawn_at = torch.from_numpy(np.concatenate([rollout.logprobs for rollout in flat]))
        below(float((scores - drawn_at).abs().max()), bound, "largest gap of a log-prob")


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


def prompts_of(policy: Policy) -> list[Prompt]:
    """Two questions as token ids."""
    return [tuple(policy.tokenizer.encode(question, add_special_tokens=False))
            for question in ("7+8-4+1?", "1-3?")]  # fmt: skip


def adapters_are_those_of_peft(device: str) -> None:
    """Our forward and backward pass through adapters, beside PEFT's own."""
    rollouts = drawn(19, SHORT)
    for dtype, bound in (("float32", FLOAT32), ("bfloat16", TWICE_BFLOAT16)):
        config = config_on(device, **{"model.tuning": "lora", "model.dtype": dtype})
        policy, sides = load(config), []
        with torch.no_grad():  # B starts at 0, where A has no gradient
            for name, parameter in policy.model.named_parameters():
                if "lora_B" in name:
                    waves = torch.sin(torch.arange(parameter.numel()))
                    parameter.copy_(0.05 * waves.view_as(parameter))
        for peft in (False, True):
            for layer in policy.model.modules() if peft else ():
                if isinstance(layer, LoraLinear):
                    del layer.forward  # ours, set over that of the class
            scores = torch.cat(score_all(UpdateContext(policy, config), rollouts)).cpu()
            sides.append((scores, gradient(policy, config, rollouts)))
        for what, ours, theirs in zip(("log-probs", "gradient"), *sides, strict=True):
            below(apart(ours, theirs), bound, f"{what} in {dtype}")


def fsdp_of_one_process_is_none(device: str) -> None:
    """The gradient under FSDP2 (NCCL on a card), which casts weights to bfloat16 and back."""
    rollouts, gradients = drawn(19, SHORT), []
    try:
        for compute_dtype in (None, "bfloat16"):
            config = config_on(device, **{"model.compute_dtype": compute_dtype})
            gradients.append(gradient(load(config), config, rollouts))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        mesh_of_one.cache_clear()
    below(apart(*reversed(gradients)), TWICE_BFLOAT16, "gradient")


def what_is_saved_is_restored(device: str) -> None:
    """Adapters and Adam's state in files, and the update after them."""
    rollouts, weights = drawn(19), []
    config = config_on(device, **{"model.tuning": "lora", "update.lr": 1e-2})

    def step(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
        update(UpdateContext(policy, config), optimizer, rollouts, SIGNS, [len(rollouts)], 1)

    with TemporaryDirectory() as folder:
        policy = load(config)
        optimizer = make_optimizer(policy, config.update)
        step(policy, optimizer)
        policy.save(Path(folder))
        save_optimizer(optimizer, Path(folder) / "optimizer.safetensors")
        restored = load(config)
        restored.restore(Path(folder))
        fresh = make_optimizer(restored, config.update)
        restore_optimizer(fresh, Path(folder) / "optimizer.safetensors")
    for side in ((policy, optimizer), (restored, fresh)):
        step(*side)
        weights.append(torch.cat([p.detach().flatten() for p in side[0].model.parameters()]).cpu())
    below(apart(*weights), FLOAT32, "weights after the next update")


def a_run_that_does_not_fit_is_refused_in_one_line(device: str) -> None:
    """Running out of memory before a run begins (on a CPU it is pretended), and enough after it."""
    config = config_on(device, **{"nm.n": 4096, "engine.max_rows": 8192})
    policy = load(config)
    engine = TransformersEngine(policy, config.engine.max_rows, lambda: None)
    worker = Worker(config, policy, make_optimizer(policy, config.update), engine, SINGLE_PROCESS,
                    lambda: None)  # fmt: skip
    with ExitStack() as shortage:
        if device == "cuda":
            torch.cuda.empty_cache()
            few = torch.cuda.memory_reserved() + 2**26
            share = few / torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(share)
            shortage.callback(torch.cuda.set_per_process_memory_fraction, 1.0)
        else:
            no_memory = Mock(side_effect=torch.OutOfMemoryError("pretended"))
            hook = policy.causal_lm.register_forward_pre_hook(no_memory)
            shortage.callback(hook.remove)
        try:
            preflight(worker, prompts_of(policy), [])
        except ValueError as error:
            if "\n" in str(error) or "lower engine.max_rows=8192" not in str(error):
                raise
        else:
            raise AssertionError("it was not refused")
    small = replace(worker, config=config_on(device))
    preflight(small, prompts_of(policy), [])


CHECKS = (
    chunked_is_plain, update_is_that_of_the_cpu, generation_has_the_trainers_logprobs,
    the_clock_waits_for_the_device,
    adapters_are_those_of_peft, fsdp_of_one_process_is_none, what_is_saved_is_restored,
    a_run_that_does_not_fit_is_refused_in_one_line,
)  # fmt: skip


def run_all(checks: Mapping[str, Callable[[], Any]]) -> Iterator[dict[str, Any]]:
    """Run checks by name; yield what is known so far, and at the end raise if any has failed.

    Of a check that passed there are its seconds and what it returned, of one that failed its
    traceback, since the others are still informative.
    """
    results, failed = dict[str, Any](), list[str]()
    for name, check in checks.items():
        start = time.monotonic()
        try:
            numbers = check() or {}
            results[name] = {"seconds": round(time.monotonic() - start, 2), **numbers}
        except Exception:
            results[name] = {"error": traceback.format_exc()}
            failed.append(name)
        yield results
    if failed:
        raise AssertionError(f"failed: {', '.join(failed)}")
