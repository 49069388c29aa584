"""Put LoRA adapters (PEFT's layers and files) on a model, computed in as few passes as possible.

PEFT's own forward scales and adds each adapter's output in separate passes over arrays as wide as
the layer, and its gradient does so again. Beside a small model's products these passes are not
small; here both are part of a product.

Shapes: N = tokens, I and O = a layer's inputs and outputs, r = rank.
"""

import json
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear
from transformers import PreTrainedModel

from pods.config.schema import LORA_TARGETS, Config
from pods.seeding import derive

ADAPTER = "default"  # PEFT's name for the only one


def with_adapters(model: PreTrainedModel, config: Config) -> PeftModel:
    """Freeze the model and put float32 adapters on the target layers; B starts at 0."""
    lora = config.model.lora
    settings = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, target_modules=lora_targets(model), task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):  # adapters are drawn on the CPU
        torch.manual_seed(derive(config.seed, "adapters"))
        adapted = get_peft_model(model, settings)
    for layer in adapted.modules():
        if isinstance(layer, LoraLinear):
            layer.forward = MethodType(_forward, layer)
    return adapted.eval()


def lora_targets(model: PreTrainedModel) -> list[str]:
    """Return the layers that get an adapter: `LORA_TARGETS`, or else PEFT's all-linear."""
    head = model.get_output_embeddings()
    names = set()
    for path, module in model.named_modules():
        if isinstance(module, Linear) and module is not head:
            names.add(path.rpartition(".")[2])
    return list(LORA_TARGETS) if names.issuperset(LORA_TARGETS) else sorted(names)


def with_merged_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Merge an adapter in PEFT's files into the weights of a model, rounded once to their dtype."""
    try:
        merged = PeftModel.from_pretrained(model, folder).merge_and_unload()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"model.path={folder}: cannot be merged into this model: {reason}"
        ) from error
    return merged.requires_grad_(True)  # type: ignore[no-any-return]


def make_portable(folder: Path) -> None:
    """Make what PEFT has written of an adapter the same in every process and on every machine.

    PEFT lists the layers in any order, names the folder of the base model, and adds a form for a
    model card with that name. `pods export` names the base again.
    """
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text())
    settings["target_modules"].sort()
    base = Path(settings["base_model_name_or_path"])
    if base.is_dir():
        settings["base_model_name_or_path"] = base.name
    path.write_text(json.dumps(settings, indent=2, sort_keys=True))

    (folder / "README.md").unlink(missing_ok=True)


def _forward(layer: LoraLinear, x: Tensor) -> Tensor:
    """Compute PEFT's forward for one plain adapter without dropout, in the dtype of x."""
    base = layer.get_base_layer()
    if layer.disable_adapters:
        return linear(x, base.weight, base.bias)
    y = _Adapted.apply(  # type: ignore[no-untyped-call]
        x.flatten(0, -2),
        base.weight,
        base.bias,
        layer.lora_A[ADAPTER].weight,
        layer.lora_B[ADAPTER].weight,
        _cast(layer, x.dtype),
        layer.scaling[ADAPTER],
    )
    return y.unflatten(0, x.shape[:-1])  # type: ignore[no-any-return]


def _cast(layer: LoraLinear, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return A, B and s B in a dtype, cast once after each change of the adapter."""
    a = layer.lora_A[ADAPTER].weight
    b = layer.lora_B[ADAPTER].weight
    version = (dtype, a.data_ptr(), a._version, b.data_ptr(), b._version)
    if getattr(layer, "pods_cast_version", None) != version:
        with torch.inference_mode(False), torch.no_grad():  # decoding may be the first to ask
            scaled = (b * layer.scaling[ADAPTER]).to(dtype)
            layer.pods_cast = (a.detach().to(dtype), b.detach().to(dtype), scaled)
        layer.pods_cast_version = version
    return layer.pods_cast  # type: ignore[no-any-return, return-value]


class _Adapted(torch.autograd.Function):
    """Compute y = x W^T + bias + s (x A^T) B^T, where W and bias are frozen.

    Float32 adapters of a bfloat16 layer take part in its products as bfloat16, and their gradients
    are float32 again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
        cast: tuple[Tensor, Tensor, Tensor],
        scale: float,
    ) -> Tensor:
        """Map x (N, I) to y (N, O); A is (r, I), B is (O, r), and `cast` are A, B, s B as x is."""
        cast_a, cast_b, scaled_b = cast
        low = linear(x, cast_a)  # (N, r)
        ctx.save_for_backward(x, weight, cast_a, scaled_b, low)
        ctx.dtype_a = a.dtype
        ctx.dtype_b = b.dtype
        ctx.scale = scale
        return linear(x, weight, bias).addmm_(low, cast_b.T, alpha=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in x, A and B of a gradient (N, O) in y."""
        [gradient] = gradients
        x, weight, cast_a, scaled_b, low = ctx.saved_tensors
        in_low = gradient @ scaled_b
        in_x = None
        if ctx.needs_input_grad[0]:
            in_x = (gradient @ weight).addmm_(in_low, cast_a)
        in_a = (in_low.T @ x).to(ctx.dtype_a)
        in_b = (gradient.T @ low).to(ctx.dtype_b) * ctx.scale
        return in_x, None, None, in_a, in_b, None, None
