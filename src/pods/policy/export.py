"""What leaves the policy for an engine with weights of its own; the policy itself is only read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor

from pods.policy.adapters import ADAPTER
from pods.policy.load import Policy
from pods.policy.sharding import whole

Rounded = tuple[str, Tensor, Tensor, Tensor]


def merged_weights(
    policy: Policy, dtype: torch.dtype, start: Mapping[str, Tensor]
) -> Iterator[Rounded]:
    """Yield each weight that training changes, with the change in it, in an engine's dtype.

    With adapters that is W + s B A of each target layer, out of place: merging in place and taking
    the change out again would let the trainer's weights drift by what rounding loses each time.
    The linear layers beside a target come too, unchanged: an engine may keep them as one (q, k and
    v), which is to be loaded whole.

    Where W is in the engine's coarse dtype already, rounding loses each change that is smaller than
    half a unit in the last place of its weight. How much of the change D survives is its kept
    projection <round(W + D) - round(W), D> / <D, D>. (Where W is finer, it is rounded up as often
    as down: noise, which can also make the projection larger than 1.)

    Args:
        policy: with adapters or without.
        dtype: of the engine's weights.
        start: the untrained weights by name, where all are trained and dtype is coarser than they.

    Yields:
        The name that a checkpoint of the whole model has for it, the weight, and the two scalar
        products, () each, of the projection.
    """
    if not isinstance(policy.model, PeftModel):
        for name, weight in policy.causal_lm.named_parameters():
            now = whole(weight.detach())
            before = start.get(name, now)
            yield _rounded(name, before, now - before, now, dtype)
        return
    for place, block in policy.causal_lm.named_modules():
        parts = dict(block.named_children())
        if any(isinstance(part, LoraLayer) for part in parts.values()):
            for name, part in parts.items():
                if isinstance(part, LoraLayer | torch.nn.Linear):
                    yield _merged(f"{place}.{name}.weight", part, dtype)


def _merged(name: str, part: Any, dtype: torch.dtype) -> Rounded:
    if not isinstance(part, LoraLayer):
        before = part.weight.detach()
        return _rounded(name, before, torch.zeros_like(before), before, dtype)
    a, b = part.lora_A[ADAPTER].weight.detach(), part.lora_B[ADAPTER].weight.detach()
    change = (b.float() @ a.float()) * part.scaling[ADAPTER]
    before = part.get_base_layer().weight.detach()
    return _rounded(name, before, change, before.float() + change, dtype)


def _rounded(
    name: str, before: Tensor, change: Tensor, after: Tensor, dtype: torch.dtype
) -> Rounded:
    weight = after.to(dtype)
    carried = (weight.float() - before.to(dtype).float()).flatten()
    wanted = change.float().flatten()
    return name, weight, carried @ wanted, wanted @ wanted


def save_adapter(policy: Policy, folder: Path, dtype: torch.dtype) -> None:
    """Write the adapter in PEFT's layout, its weights in an engine's dtype."""
    model = policy.model
    assert isinstance(model, PeftModel)
    state = get_peft_model_state_dict(model)
    folder.mkdir(parents=True)
    save_file({k: v.detach().to("cpu", dtype).contiguous() for k, v in state.items()},
              folder / "adapter_model.safetensors")  # fmt: skip
    model.peft_config[ADAPTER].save_pretrained(str(folder))
