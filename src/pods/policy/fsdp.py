"""Shard weights, gradients and Adam's moments over the processes of a run (FSDP2).

Each process keeps an equal part of every tensor. A layer is gathered on all of them when it is
computed with, forward and back, and resharded afterwards; gradients are summed as they are made.
"""

from collections.abc import Mapping
from functools import partial
from types import MethodType

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pods.policy.logprobs import TokenScores, token_logprobs
from pods.policy.packing import MicroBatch
from pods.policy.process_group import ProcessGroup

METHOD = "pods_token_logprobs"


def shard(model: PreTrainedModel, process_group: ProcessGroup) -> None:
    """Keep this process's part of each weight, on the device of the process group."""
    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=process_group.mesh)
    fully_shard(model, mesh=process_group.mesh)  # embedding, last norm and output layer
    for module in model.modules():
        if isinstance(module, FSDPModule):  # gradients are sums: losses have a common denominator
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    setattr(model, METHOD, MethodType(token_logprobs, model))
    register_fsdp_forward_method(model, METHOD)  # gathers what the method reads


def forward_logprobs(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    temperature: float,
    vocabulary: int,
    entropy_gradient: bool = False,
) -> TokenScores:
    """Call `token_logprobs`; if the model is sharded, all processes must do so at once."""
    method = partial(token_logprobs, model)
    if isinstance(model, FSDPModule):
        method = getattr(model, METHOD)
    scores = method(
        batch, temperature=temperature, vocabulary=vocabulary, entropy_gradient=entropy_gradient
    )
    if isinstance(model, FSDPModule) and not torch.is_grad_enabled():
        model.reshard()  # otherwise the backward pass does
    return scores


def is_sharded(model: object) -> bool:
    """Return whether the model's weights are sharded."""
    return isinstance(model, FSDPModule)


def weights_version(model: torch.nn.Module) -> int:
    """Return a number that grows whenever torch writes to a trained weight in place.

    It does not grow where a weight's `.data` is written to, nor by a fused optimizer.
    """
    return sum(p._version for p in model.parameters() if p.requires_grad)


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, which all processes must ask for at once; return others as is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's part of a sharded tensor; return others as is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_on_host(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Gather one tensor after the other in the host's memory; return {} where not to `keep`."""
    gathered = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if keep:
            gathered[name] = full.detach().cpu()
    return gathered


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor as `like` is; return it as is where `like` is not sharded."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
