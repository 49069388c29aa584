"""Fuse the passes over whole arrays between the products of an update (`update.compiled`).

Torch's compiler makes one kernel of several such passes, of any number of tokens. Products,
attention and adapters stay as they are, and so does decoding, whose arrays are small.
"""

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

FUSED = "pods_fused"  # an attribute of a model that `fuse_layers` has seen
GATED = ("act_fn", "gate_proj", "up_proj", "down_proj")


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is compiled at its first call, once in a process."""
    return torch.compile(function, dynamic=True)


def fuse_layers(model: nn.Module) -> None:
    """Compile the norms and the gated activations of a Llama or one built alike, in place."""
    setattr(model, FUSED, True)  # `logprobs` asks for it
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):  # of an RMSNorm
            module.forward = MethodType(_normed, module)
        elif all(hasattr(module, name) for name in GATED):
            module.forward = MethodType(_gated, module)


def _normed(norm: nn.Module, *states: Tensor) -> Tensor:
    return _unless_decoding(type(norm).forward)(norm, *states)  # type: ignore[no-any-return]


def _gated(mlp: Any, states: Tensor) -> Tensor:
    gate = mlp.gate_proj(states)
    up = mlp.up_proj(states)
    activated = _unless_decoding(_activated)(mlp.act_fn, gate, up)
    return mlp.down_proj(activated)  # type: ignore[no-any-return]


def _activated(activation: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    return activation(gate) * up


def _unless_decoding(function: Callable[..., Any]) -> Callable[..., Any]:
    return function if torch.is_inference_mode_enabled() else compiled(function)
