"""Weight sync: bring the policy's present weights into a vLLM of this process.

A merge streams whole weights. An adapter is handed over in memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from vllm import LLMEngine
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.request import LoRARequest

from pods.policy.export import copy_adapter, kept_projection, merged_weights
from pods.policy.policy import Policy


def merge(vllm: LLMEngine, policy: Policy, dtype: torch.dtype) -> float | None:
    """Stream the trained weights to vLLM, merged out of place.

    If the policy is sharded, all processes must call this at once.

    Returns:
        The kept projection of adapters; None if all weights are trained.
    """
    products = torch.zeros(2, dtype=torch.float64, device=policy.device)

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name, weight, weight_products in merged_weights(policy.model, dtype):
            products.add_(weight_products)
            yield name, weight

    with torch.no_grad():
        vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream()})
        vllm.apply_model(_repack_tied_head)
    adapted = policy.model is not policy.causal_lm
    return kept_projection(products.tolist()) if adapted else None


def _repack_tied_head(model: Any) -> None:
    """Make vLLM's CPU output layer take the embedding's new weights.

    If the two are tied, reloading updates the embedding, but not the copy of it that the output
    layer has packed for its matrix product.
    """
    head = model.lm_head
    if model.config.tie_word_embeddings and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def hand_over_adapter(
    vllm: LLMEngine, policy: Policy, dtype: torch.dtype, old: LoRARequest | None
) -> LoRARequest:
    """Replace the adapter in vLLM by a copy on the device of its model, without a file.

    Returns:
        What a request names to use the adapter: a name and an id that no cache has seen.
    """
    number = 1 if old is None else old.lora_int_id + 1
    weights, settings = copy_adapter(policy.model, policy.device, dtype)  # vLLM scales B in place
    helper = PEFTHelper.from_dict(settings)

    def take(worker: Any) -> None:
        """Put the adapter where vLLM's own loading from files would put it."""
        manager = worker.model_runner.lora_manager._adapter_manager
        mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
        adapter = LoRAModel.from_lora_tensors(
            number,
            weights,
            helper,
            device=str(policy.device),
            dtype=dtype,
            weights_mapper=mapper and mapper.get_rename_mapper(),
        )
        manager.add_adapter(adapter)
        manager.activate_adapter(number)

    if old is not None:
        vllm.remove_lora(old.lora_int_id)
    vllm.collective_rpc(take)
    return LoRARequest(f"policy-{number}", number, "in memory: never read from a file")
