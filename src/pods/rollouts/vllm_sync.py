"""Weight sync: how the policy's present weights get into a vLLM of this process."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm import LLMEngine
from vllm.lora.request import LoRARequest

from pods.config import Config
from pods.policy.export import merged_weights, save_adapter
from pods.policy.load import Policy
from pods.policy.sharding import whole


def merge(
    vllm: LLMEngine, policy: Policy, dtype: torch.dtype, start: Mapping[str, Tensor]
) -> float:
    """Stream the trained weights over, merged out of place; return their kept projection."""
    sums = torch.zeros(2, dtype=torch.float64, device=policy.device)

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name, weight, carried, wanted in merged_weights(policy, dtype, start):
            sums.add_(torch.stack([carried, wanted]))
            yield name, weight

    with torch.no_grad():
        vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream()})
        vllm.apply_model(_repack_tied_head)
    carried, wanted = sums.tolist()
    return carried / wanted if wanted else 1.0


def untrained(policy: Policy, config: Config) -> dict[str, Tensor]:
    """The weights at the start, where all are trained and the engine's are coarser; else none."""
    if config.model.tuning != "full" or config.engine.dtype == config.model.dtype:
        return {}
    return {k: whole(v.detach()).clone() for k, v in policy.causal_lm.named_parameters()}


def _repack_tied_head(model: Any) -> None:
    """Make vLLM's CPU layer for the output take the embedding's new weights.

    Where the two are tied, reloading brings the embedding up to date and leaves the copy that the
    output layer has packed for its matrix product as it was.
    """
    head = model.lm_head
    if model.config.tie_word_embeddings and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def swap_adapter(
    vllm: LLMEngine, policy: Policy, dtype: torch.dtype, old: LoRARequest | None
) -> LoRARequest:
    """Load the adapter in place of the old one, through memory.

    Returns:
        What a request names to use it: a name and an id that no cache has seen.
    """
    number = old.lora_int_id + 1 if old else 1
    with tempfile.TemporaryDirectory(prefix="pods-adapter-", dir=_memory()) as scratch:
        folder = Path(scratch) / f"policy-{number}"
        save_adapter(policy, folder, dtype)
        if old is not None:
            vllm.remove_lora(old.lora_int_id)
        new = LoRARequest(folder.name, number, str(folder))
        vllm.add_lora(new)
    return new


def _memory() -> str | None:
    """A folder in memory, where there is one."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) else None
