"""The policy without adapters in its way: a second model with W + s B A as its linear layers.

Decoding a token goes through each adapter's two small products, which on a CPU take far more time
than their arithmetic says. The copy holds the layers that have adapters a second time; the rest is
the policy's own.
"""

import copy

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel

from pods.policy.adapters import ADAPTER
from pods.policy.load import Policy


def mergeable(policy: Policy) -> bool:
    """Whether merging loses nothing: in bfloat16 it would round most of a small update away."""
    return isinstance(policy.model, PeftModel) and policy.causal_lm.dtype == torch.float32


class Merged:
    """A model that follows the policy; the policy's own weights are only read."""

    def __init__(self, policy: Policy) -> None:
        """Build it; `follow` makes it equal to the policy."""
        assert isinstance(policy.model, PeftModel)
        self.policy = policy
        source = policy.causal_lm
        shared = {id(tensor): tensor for tensor in (*source.parameters(), *source.buffers())}
        self.model: PreTrainedModel = copy.deepcopy(source, shared)  # type: ignore[arg-type]
        self.layers: list[tuple[LoraLayer, nn.Linear]] = []
        for place, layer in list(source.named_modules()):
            if isinstance(layer, LoraLayer):
                base = layer.get_base_layer()
                own = nn.Linear(base.in_features, base.out_features, device="meta")
                own.weight = nn.Parameter(torch.empty_like(base.weight), requires_grad=False)
                own.bias = base.bias
                self.model.set_submodule(place, own)
                self.layers.append((layer, own))
        self.version = -1

    @torch.no_grad()
    def follow(self) -> None:
        """Take over the policy's present weights, unrounded; no work where they have not moved."""
        if self.version != self.policy.version:
            for layer, own in self.layers:
                a, b = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
                base = layer.get_base_layer().weight
                torch.addmm(base, b, a, alpha=layer.scaling[ADAPTER], out=own.weight)
            self.version = self.policy.version
