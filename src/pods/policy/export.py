"""Give the policy's present weights to an engine that decodes from its own copy.

The transformers engine decodes from a `WeightMirror`; vLLM takes a stream of `merged_weights`, or
an adapter. The policy itself is only read.
"""

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict
from torch import Tensor, nn
from transformers import PreTrainedModel

from pods.config.schema import Config
from pods.policy.fsdp import full_tensor, weights_version
from pods.policy.lora import ADAPTER, lora_targets
from pods.policy.process_group import ProcessGroup

PACKED_ROWS = 64  # of the products that packed weights are laid out for; others work, too


def kept_projection(products: Sequence[float]) -> float:
    """Return the share of training's change that survives rounding to an engine's dtype.

    If W is in that coarse dtype already, rounding loses each change that is smaller than half a
    unit in the last place of its weight. How much of the change D survives is its kept projection
    <round(W + D) - round(W), D> / <D, D>, of all weights together. (If W is finer, it is rounded up
    as often as down: noise, which can also make the projection larger than 1.)
    """
    survived_rounding, total = products
    return survived_rounding / total if total else 1.0


def rounding_products(before: Tensor, change: Tensor, rounded: Tensor) -> Tensor:
    """Return numerator and denominator of one weight's kept projection, (2,), in float64."""
    survived = (rounded.float() - before.to(rounded.dtype).float()).flatten()
    change = change.float().flatten()
    return torch.stack([survived @ change, change @ change]).double()


def copy_to_decode(
    model: PreTrainedModel, config: Config, process_group: ProcessGroup
) -> PreTrainedModel | None:
    """Copy a model that the transformers engine could not decode from, or only slowly.

    Each token would go through every adapter's two small products, which are slow on a CPU. So the
    copy has weights of its own for the layers that will get adapters, and shares all others. This
    needs float32: in bfloat16, merging would round most of a small update away. Of a model that
    will be sharded the copy has all weights, in the engine's dtype; if that is the coarser one, a
    run on one process has a copy too, so that results do not depend on the number of processes.
    None: the engine decodes from the model itself.
    """
    dtype = getattr(torch, config.engine.dtype)
    if config.engine.name != "transformers":
        return None
    if config.uses_fsdp(process_group.size) or (config.sharded() and dtype != model.dtype):
        endings: tuple[str, ...] = ("",)
    elif config.model.tuning == "lora" and model.dtype == torch.float32:
        dtype, endings = model.dtype, tuple(f".{name}.weight" for name in lora_targets(model))
    else:
        return None

    memo: dict[int, Any] = {}  # what `deepcopy` shares or replaces
    for name, weight in model.named_parameters():
        memo[id(weight)] = weight
        if name.endswith(endings):
            copied = weight.detach().to(config.hardware.device, dtype, copy=True)
            memo[id(weight)] = nn.Parameter(copied, requires_grad=False)
    return copy.deepcopy(model, memo)


class WeightMirror:
    """A second model, which an engine decodes from; `refresh` gives it the policy's weights."""

    def __init__(self, model: PreTrainedModel, source: PreTrainedModel) -> None:
        """Mirror the policy's untrained model by what `copy_to_decode` made of it."""
        self.model: PreTrainedModel = model.to(source.device)  # type: ignore[arg-type]
        self.source = source
        self.version = -1

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the policy's weights, on all processes at once, if they changed."""
        version = weights_version(self.source)
        if self.version == version:
            return

        for name, weight in self.model.named_parameters():
            path, _, kind = name.rpartition(".")
            layer = self.source.get_submodule(path)
            if isinstance(layer, LoraLayer):
                if kind == "weight":  # a bias is shared
                    _merge_into(weight, layer)
            else:
                current = layer.get_parameter(kind)
                if current is not weight:
                    weight.copy_(full_tensor(current))
        if self.model.device.type == "cpu" and torch.backends.mkldnn.is_available():
            _pack(self.model)
        self.version = version


def _merge_into(weight: Tensor, layer: LoraLayer) -> None:
    """Write W + s B A into a weight in float32, which rounds nothing away."""
    a = layer.lora_A[ADAPTER].weight
    b = layer.lora_B[ADAPTER].weight
    base = layer.get_base_layer().weight
    torch.addmm(base, b, a, alpha=layer.scaling[ADAPTER], out=weight)


def _pack(model: nn.Module) -> None:
    """Let linear layers multiply by copies of changed weights, in the order that oneDNN reads.

    A plain product of few rows, as in decoding, spends half its time on such copies.
    """
    for layer in model.modules():
        if not isinstance(layer, nn.Linear):
            continue
        version = layer.weight._version
        if version == getattr(layer, "packed", -1):
            continue
        layer.forward = partial(  # type: ignore[method-assign]
            torch.ops.mkldnn._linear_pointwise,
            W=torch.ops.mkldnn._reorder_linear_weight(layer.weight, PACKED_ROWS),
            B=layer.bias,
            attr="none",
            scalars=[],
            algorithm="",
        )
        layer.packed = version  # type: ignore[assignment]


class MergedWeight(NamedTuple):
    """One weight of the policy, as an engine loads it."""

    name: str  # as in a checkpoint of the full model
    weight: Tensor  # in the engine's dtype
    rounding: Tensor  # (2,) `rounding_products` of an adapter's change; 0 if there is none


def merged_weights(
    model: PreTrainedModel | PeftModel, dtype: torch.dtype
) -> Iterator[MergedWeight]:
    """Yield each trained weight, adapters merged into it, in an engine's dtype.

    With adapters that is W + s B A of each target layer, out of place: merging in place and taking
    the change out again would let the trainer's weights drift. The other linear layers of the same
    block are yielded too, unchanged: an engine may keep q, k and v as one and load them together.
    """
    if not isinstance(model, PeftModel):
        for name, parameter in model.named_parameters():
            yield _unchanged(name, full_tensor(parameter.detach()), dtype)
        return

    for path, block in model.get_base_model().named_modules():
        layers = dict(block.named_children())
        if not any(isinstance(layer, LoraLayer) for layer in layers.values()):
            continue
        for name, layer in layers.items():
            if isinstance(layer, LoraLayer | nn.Linear):
                yield _merged(f"{path}.{name}.weight", layer, dtype)


def _merged(name: str, layer: Any, dtype: torch.dtype) -> MergedWeight:
    if not isinstance(layer, LoraLayer):
        return _unchanged(name, layer.weight.detach(), dtype)

    a = layer.lora_A[ADAPTER].weight.detach()
    b = layer.lora_B[ADAPTER].weight.detach()
    change = (b.float() @ a.float()) * layer.scaling[ADAPTER]
    before = layer.get_base_layer().weight.detach()
    rounded = (before.float() + change).to(dtype)
    return MergedWeight(name, rounded, rounding_products(before, change, rounded))


def _unchanged(name: str, weight: Tensor, dtype: torch.dtype) -> MergedWeight:
    return MergedWeight(name, weight.to(dtype), weight.new_zeros(2, dtype=torch.float64))


def copy_adapter(
    model: PeftModel, device: torch.device, dtype: torch.dtype
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Copy the adapter's weights by their names in PEFT's files, and return its settings too."""
    state = get_peft_model_state_dict(model)
    weights = {name: w.detach().to(device, dtype, copy=True) for name, w in state.items()}
    return weights, model.peft_config[ADAPTER].to_dict()
