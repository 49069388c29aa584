"""The `vllm` engine: vLLM in this process, with weights of its own that `sync` brings up to date.

vLLM runs in process, without a server and without workers, so that weights go over by reference
and a step of the engine is a call that returns.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from pods.config import Config
from pods.policy.export import merged_weights, save_adapter
from pods.policy.load import Policy
from pods.randomness import derive
from pods.records import Rollout, Sampling
from pods.rollouts.engine import EngineFailed, Prompt
from pods.rollouts.vllm_setup import start_vllm


class VllmEngine:
    """Samples from a copy of the policy's weights, and refuses to where the copy is out of date."""

    def __init__(self, policy: Policy, config: Config, check: Callable[[], None]) -> None:
        """Start the engine on the untrained weights; `check()` may raise between tokens.

        Raises:
            ValueError: vLLM cannot run this model, or has no room for it.
        """
        self.policy = policy
        self.check = check
        self.dtype = getattr(torch, config.engine.dtype)
        self.on_cpu = policy.device.type == "cpu"
        self.adapters = config.engine.sync == "adapter"
        self.adapter: LoRARequest | None = None
        self.synced = -1  # version of the policy that the engine has
        self.start = self._untrained(config)
        self.vllm = start_vllm(config)
        padding = range(policy.vocabulary, policy.causal_lm.config.vocab_size)
        self.bias = dict.fromkeys(padding, -100.0) or None  # ids that the tokenizer does not know
        self.sync()
        self.generate([(0,)], 2, Sampling(1.0, 2), [0])  # the first call compiles and allocates

    def sync(self) -> float | None:
        """Bring the policy's present weights into the engine; see `Engine.sync`."""
        kept = None
        try:
            if self.adapters:
                self._swap_adapter()
            else:
                kept = self._merge()
        except Exception as error:
            raise EngineFailed(f"vLLM took no new weights: {error!r}") from error
        self.synced = self.policy.version
        return kept

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seeds: Sequence[int]
    ) -> list[list[Rollout]]:
        """Draw n completions of every prompt; see `Engine.generate`.

        The prefix cache starts empty, so that requests are batched alike whatever was asked before,
        and no key or value of older weights is left.

        Raises:
            EngineFailed: vLLM broke down.
            RuntimeError: the policy has changed since the last sync.
        """
        if self.policy.version != self.synced:
            raise RuntimeError("the policy has changed since vLLM was last synced with it")
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(derive(0, "call", *seeds))
                found = self._drive(prompts, n, sampling, seeds)
        except Exception as error:
            raise EngineFailed(f"vLLM broke down: {error!r}") from error
        completions = [one for output in found for one in output.outputs]
        texts = self.policy.tokenizer.batch_decode(
            [one.token_ids for one in completions], skip_special_tokens=True
        )
        owners = [prompt for prompt in prompts for _ in range(n)]
        rollouts = [
            Rollout(
                owner,
                tuple(one.token_ids),
                np.array(one.logprobs.logprobs, np.float32),
                text,
                one.finish_reason == "stop",
            )
            for owner, one, text in zip(owners, completions, texts, strict=True)
        ]
        return [rollouts[i * n : (i + 1) * n] for i in range(len(prompts))]

    def _drive(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seeds: Sequence[int]
    ) -> list[RequestOutput]:
        """Step the engine until all requests are answered; whatever raises leaves none behind."""
        if not self.vllm.reset_prefix_cache():
            raise RuntimeError("its prefix cache is in use")
        names = [str(i) for i in range(len(prompts))]
        found: dict[str, RequestOutput] = {}
        try:
            for name, prompt, seed in zip(names, prompts, seeds, strict=True):
                self.vllm.add_request(
                    name,
                    {"prompt_token_ids": list(prompt)},
                    self.parameters(n, sampling, seed),
                    lora_request=self.adapter,
                )
            while self.vllm.has_unfinished_requests():
                self.check()
                found |= {one.request_id: one for one in self.vllm.step() if one.finished}
        except BaseException:
            self.vllm.abort_request(names)
            raise
        return [found[name] for name in names]

    def parameters(self, n: int, sampling: Sampling, seed: int) -> SamplingParams:
        """What to draw. On a GPU each request has its seed; on a CPU the call has one.

        There a request with a seed costs a call into torch for every token, and raises where its
        prompt is prefilled in two parts, since torch's CPU generator cannot be set back.
        """
        return SamplingParams(
            n=n,
            temperature=sampling.temperature,
            max_tokens=sampling.max_completion_tokens,
            seed=None if self.on_cpu else seed,
            stop_token_ids=self.policy.stop_ids,
            logit_bias=self.bias,
            logprobs=0,  # of the token drawn, and no other
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _merge(self) -> float:
        """Stream the trained weights over; return their kept projection."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.policy.device)

        def stream() -> Iterator[tuple[str, Tensor]]:
            for name, weight, carried, wanted in merged_weights(
                self.policy, self.dtype, self.start
            ):
                sums.add_(torch.stack([carried, wanted]))
                yield name, weight

        with torch.no_grad():
            self.vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream()})
            self.vllm.apply_model(_repack_tied_head)
        carried, wanted = sums.tolist()
        return carried / wanted if wanted else 1.0

    def _swap_adapter(self) -> None:
        """Load the adapter under a name and an id that no cache has seen, through memory."""
        number = self.adapter.lora_int_id + 1 if self.adapter else 1
        with tempfile.TemporaryDirectory(prefix="pods-adapter-", dir=_memory()) as scratch:
            folder = Path(scratch) / f"policy-{number}"
            save_adapter(self.policy, folder, self.dtype)
            if self.adapter is not None:
                self.vllm.remove_lora(self.adapter.lora_int_id)
            self.adapter = LoRARequest(folder.name, number, str(folder))
            self.vllm.add_lora(self.adapter)

    def _untrained(self, config: Config) -> dict[str, Tensor]:
        """The weights that all are trained, where the engine's are coarser; else nothing."""
        if config.model.tuning != "full" or config.engine.dtype == config.model.dtype:
            return {}
        return {k: v.detach().clone() for k, v in self.policy.causal_lm.named_parameters()}


def _repack_tied_head(model: Any) -> None:
    """Make vLLM's CPU layer for the output take the embedding's new weights.

    Where the two are tied, reloading brings the embedding up to date and leaves the copy that the
    output layer has packed for its matrix product as it was.
    """
    head = model.lm_head
    if model.config.tie_word_embeddings and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def _memory() -> str | None:
    """A folder in memory, where there is one."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) else None
