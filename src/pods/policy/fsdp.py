"""Shard weights, gradients and Adam's moments over the processes of a run (FSDP2).

Each process keeps an equal part of every tensor. A layer is gathered on all of them when it is
computed with, forward and back, in the dtype that the update computes in, and resharded afterwards;
gradients are summed as they are made, in the dtype of the weights. A single process that computes
in another dtype than that of its weights is the same with one part.
"""

import os
from collections.abc import Mapping
from functools import cache, partial
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import fsdp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pods.config.schema import Config
from pods.policy.logprobs import TokenScores, token_logprobs
from pods.policy.packing import MicroBatch
from pods.policy.process_group import BACKENDS, ProcessGroup
from pods.system.machine import LOOPBACK

METHOD = "pods_token_logprobs"


def shard(model: PreTrainedModel, process_group: ProcessGroup, config: Config) -> None:
    """Keep this process's part of each weight, on the device of the process group."""
    mesh = process_group.mesh or mesh_of_one(config.hardware.device)
    precision = fsdp.MixedPrecisionPolicy()
    if config.computed_in() != config.model.dtype:
        computed = getattr(torch, config.computed_in())
        precision = fsdp.MixedPrecisionPolicy(computed, reduce_dtype=model.dtype)

    for layer in model.get_decoder().layers:
        fsdp.fully_shard(layer, mesh=mesh, mp_policy=precision)
    fsdp.fully_shard(model, mesh=mesh, mp_policy=precision)  # embedding, last norm, output layer
    for module in _sharded_modules(model):  # gradients are sums: losses have a common denominator
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo knows no other

    setattr(model, METHOD, MethodType(token_logprobs, model))
    fsdp.register_fsdp_forward_method(model, METHOD)  # gathers what the method reads


@cache
def mesh_of_one(device: str) -> DeviceMesh:
    """Return the mesh of a process that is alone, for what torch computes only on a mesh."""
    for variable, interface in LOOPBACK.items():
        os.environ.setdefault(variable, interface)
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(BACKENDS[device], store=store, rank=0, world_size=1)
    return init_device_mesh(device, (1,))


def forward_logprobs(model: PreTrainedModel, batch: MicroBatch, **settings: Any) -> TokenScores:
    """Call `token_logprobs`; if the model is sharded, all processes must do so at once."""
    method = getattr(model, METHOD) if is_sharded(model) else partial(token_logprobs, model)
    scores: TokenScores = method(batch, **settings)
    if not torch.is_grad_enabled():  # otherwise the backward pass does
        for module in _sharded_modules(model):
            module.reshard()
    return scores


def _sharded_modules(model: torch.nn.Module) -> list[fsdp.FSDPModule]:
    return [module for module in model.modules() if isinstance(module, fsdp.FSDPModule)]


def is_sharded(model: object) -> bool:
    """Return whether the model's weights are sharded."""
    return isinstance(model, fsdp.FSDPModule)


def weights_version(model: torch.nn.Module) -> int:
    """Return a number that grows whenever a trained weight changes.

    Torch counts what is written in place, except to `.data`, and `make_optimizer` its steps.
    """
    return sum(p._version for p in model.parameters() if p.requires_grad)


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, which all processes must ask for at once; return others as is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's part of a sharded tensor; return others as is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_on_host(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Gather one tensor after the other in the host's memory; return {} unless `keep`."""
    gathered = {}
    for name, tensor in tensors.items():
        whole = full_tensor(tensor)
        if keep:
            gathered[name] = whole.detach().cpu()
    return gathered


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor as `like` is; return it as is if `like` is not sharded."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
