"""Weights, gradients and Adam's moments spread over the processes of a run (FSDP2).

Each process keeps an equal part of every tensor. A layer is put together on all of them when it is
computed with, forward and back, and taken apart again; gradients are added up as they are made.
"""

import copy
from collections.abc import Mapping
from types import MethodType

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pods.policy.logprobs import token_logprobs
from pods.policy.packing import MicroBatch
from pods.policy.team import Team

METHOD = "pods_token_logprobs"


def shard(model: PreTrainedModel, team: Team) -> None:
    """Keep of each weight this process's part; the model's device is that of the team."""
    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=team.mesh)
    fully_shard(model, mesh=team.mesh)  # embedding, last norm and output layer
    for part in model.modules():
        if isinstance(part, FSDPModule):  # gradients are sums: each loss has its share of the whole
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    setattr(model, METHOD, MethodType(token_logprobs, model))
    register_fsdp_forward_method(model, METHOD)  # puts together what the method reads


def logprobs(
    model: PreTrainedModel, batch: MicroBatch, *, temperature: float, vocabulary: int
) -> Tensor:
    """`token_logprobs` of a model whose weights may be spread; then all processes must call."""
    if not isinstance(model, FSDPModule):
        return token_logprobs(model, batch, temperature=temperature, vocabulary=vocabulary)
    found = getattr(model, METHOD)(batch, temperature=temperature, vocabulary=vocabulary)
    if not torch.is_grad_enabled():  # else the backward pass takes it apart again
        model.reshard()
    return found  # type: ignore[no-any-return]


def sharded(model: object) -> bool:
    """Whether the model's weights are spread."""
    return isinstance(model, FSDPModule)


def version(model: torch.nn.Module) -> int:
    """A number that grows whenever torch writes to a trained weight in place.

    Not where its `.data` is written to, nor by a fused optimizer.
    """
    return sum(p._version for p in model.parameters() if p.requires_grad)


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of one that is spread; all processes must ask for it at once."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """What this process has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """All of each tensor in the host's memory, one after the other; nothing where not to keep."""
    found = {}
    for name, tensor in tensors.items():
        together = whole(tensor)
        if keep:
            found[name] = together.detach().cpu()
    return found


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """Of a whole tensor what belongs beside `like`: this process's part where that is spread."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    here = tensor.to(like.device)
    return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)


class Gathered:
    """A whole model for an engine, with weights of its own that follow the spread ones."""

    def __init__(
        self, source: PreTrainedModel, dtype: torch.dtype, device: str, team: Team
    ) -> None:
        """Copy a model before it is spread; only its weights are rounded to dtype."""
        self.source, self.dtype, self.team = source, dtype, team
        rounded = {
            id(p): torch.nn.Parameter(p.detach().to(device, dtype, copy=True), requires_grad=False)
            for p in source.parameters()
        }
        self.model: PreTrainedModel = copy.deepcopy(source, rounded)  # type: ignore[arg-type]
        self.model.to(device)  # type: ignore[arg-type]
        self.start: list[Tensor] = []
        """What this process has of each untrained weight, where rounding may lose its change."""
        self.version = -1
        self.kept: float | None = None

    def remember(self) -> None:
        """Keep the weights as they are now, untrained; called once they are spread."""
        if self.dtype != self.source.dtype:
            self.start = [own(p).detach().clone() for p in self.source.parameters()]

    @torch.no_grad()
    def follow(self) -> float | None:
        """Take over the present weights, on all processes at once; no work where none moved.

        Returns:
            The share of training's change that rounding kept (kept projection, `export.py`); None
            where there is no rounding.
        """
        if self.version != version(self.source):
            weights = zip(self.model.parameters(), self.source.parameters(), strict=True)
            for copied, weight in weights:
                copied.copy_(whole(weight))
            self.version = version(self.source)
            self.kept = self._kept() if self.start else None
        return self.kept

    def _kept(self) -> float:
        sums = torch.zeros(2, dtype=torch.float64)
        for before, weight in zip(self.start, self.source.parameters(), strict=True):
            now = own(weight)
            wanted = (now - before).flatten()
            carried = (now.to(self.dtype).float() - before.to(self.dtype).float()).flatten()
            sums += torch.stack([carried @ wanted, wanted @ wanted]).double().cpu()
        arrived, made = self.team.total(sums.tolist())
        return arrived / made if made else 1.0
