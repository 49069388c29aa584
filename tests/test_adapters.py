"""The adapters' own arithmetic, against PEFT's forward and autograd."""

import pytest
import torch
from compose import composed
from peft.tuners.lora import Linear as LoraLinear
from precision import to_double
from transformers import AutoConfig, AutoModelForCausalLM

from pods.policy.load import load
from pods.policy.merged import Merged

IDS = torch.arange(1, 13).view(2, 6)


def made(dtype, *words):
    """A policy with adapters away from their start, and a layer's PEFT forward on demand."""
    policy = load(
        composed("model.tuning=lora", f"model.dtype={dtype}", "model.lora.alpha=24", *words)
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) / 20)
    return policy


def results(policy):
    """Logits, and the gradient of a function of them in every adapter."""
    policy.model.zero_grad()
    logits = policy.causal_lm(IDS).logits
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    (logits * weights).sum().backward()
    return logits.detach(), {
        name: p.grad for name, p in policy.model.named_parameters() if p.requires_grad
    }


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 0.05)]
)
def test_it_is_pefts_forward_and_gradient(dtype, bound):
    policy = made("float32" if dtype == "float64" else dtype)
    if dtype == "float64":
        to_double(policy.model)
    logits, gradients = results(policy)
    layers = [part for part in policy.model.modules() if isinstance(part, LoraLinear)]
    assert len(layers) == 14
    for layer in layers:
        del layer.forward  # PEFT's is back
    expected, slopes = results(policy)
    assert logits.dtype == expected.dtype
    assert (logits - expected).abs().max() <= bound * expected.abs().max()
    for name, slope in slopes.items():
        assert gradients[name].dtype == slope.dtype
        assert (gradients[name] - slope).norm() <= bound * slope.norm(), name


def test_switched_off_it_is_the_layer_alone():
    policy = made("float32")
    with policy.reference() as model, torch.no_grad():
        found = model(IDS).logits
    plain = load(composed()).causal_lm(IDS).logits
    assert torch.equal(found, plain)
    assert not torch.allclose(policy.causal_lm(IDS).logits, plain, atol=1e-3)


def test_an_adapter_adds_alpha_over_rank_times_b_a():
    policy = made("float32")  # alpha 24, rank 8
    layer = next(part for part in policy.model.modules() if isinstance(part, LoraLinear))
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert a.shape[0] == b.shape[1] == 8
    x = torch.randn(3, 5, a.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = x @ (layer.get_base_layer().weight + 3 * b @ a).T
        assert torch.allclose(layer(x), expected, atol=1e-5)


def test_a_layer_with_a_bias_keeps_it(tmp_path):
    """Qwen's queries, keys and values have one: in the update, and in the copy that decodes."""
    tiny = load(composed())
    settings = AutoConfig.for_model(
        "qwen2", vocab_size=19, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(settings)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    policy = made("float32", f"model.path={tmp_path}")
    merged = Merged(policy)
    merged.follow()
    logits, gradients = results(policy)
    with torch.no_grad():
        assert torch.allclose(merged.model(IDS).logits, logits, atol=1e-4)
    for layer in policy.model.modules():
        if isinstance(layer, LoraLinear):
            del layer.forward  # PEFT's is back
    expected, slopes = results(policy)
    assert torch.allclose(logits, expected, atol=1e-4)
    for name, slope in slopes.items():
        assert (gradients[name] - slope).norm() <= 1e-3 * slope.norm(), name
