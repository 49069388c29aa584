"""Weight sync: bring the policy's present weights into a vLLM of this process."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm import LLMEngine
from vllm.lora.request import LoRARequest

from pods.config.schema import Config
from pods.policy.export import kept_projection, merged_weights, save_adapter
from pods.policy.fsdp import full_tensor
from pods.policy.policy import Policy


def merge(
    vllm: LLMEngine, policy: Policy, dtype: torch.dtype, start: Mapping[str, Tensor]
) -> float:
    """Stream the trained weights to vLLM, merged out of place; return their kept projection."""
    products = torch.zeros(2, dtype=torch.float64, device=policy.device)

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name, weight, of_weight in merged_weights(policy.model, dtype, start):
            products.add_(of_weight)
            yield name, weight

    with torch.no_grad():
        vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream()})
        vllm.apply_model(_repack_tied_head)
    return kept_projection(products.tolist())


def untrained_weights(policy: Policy, config: Config) -> dict[str, Tensor]:
    """Copy the weights at the start if all are trained and the engine's are coarser; else none."""
    if config.model.tuning != "full" or config.engine.dtype == config.model.dtype:
        return {}
    return {k: full_tensor(v.detach()).clone() for k, v in policy.causal_lm.named_parameters()}


def _repack_tied_head(model: Any) -> None:
    """Make vLLM's CPU output layer take the embedding's new weights.

    Where the two are tied, reloading updates the embedding, but not the copy of it that the output
    layer has packed for its matrix product.
    """
    head = model.lm_head
    if model.config.tie_word_embeddings and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def swap_adapter(
    vllm: LLMEngine, policy: Policy, dtype: torch.dtype, old: LoRARequest | None
) -> LoRARequest:
    """Replace the adapter in vLLM, through files in memory where the machine has a folder there.

    Returns:
        What a request names to use the adapter: a name and an id that no cache has seen.
    """
    number = old.lora_int_id + 1 if old else 1
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pods-adapter-", dir=memory) as scratch:
        folder = Path(scratch) / f"policy-{number}"
        save_adapter(policy.model, folder, dtype)
        if old is not None:
            vllm.remove_lora(old.lora_int_id)
        new = LoRARequest(folder.name, number, str(folder))
        vllm.add_lora(new)
    return new
