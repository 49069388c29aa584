"""The adapters' own arithmetic, compared with PEFT's forward and autograd."""

import pytest
import torch
from compose import composed
from peft.tuners.lora import Linear as LoraLinear
from policies import disturbed, save_other, trained
from transformers import AutoConfig, AutoModelForCausalLM

from pods.policy import lora
from pods.policy.policy import load

IDS = torch.arange(1, 13).view(2, 6)
LORA = ("model.tuning=lora", "model.lora.alpha=24")


def logits_and_gradients(policy):
    """Logits, and the gradient of a function of them in every adapter."""
    policy.model.zero_grad()
    logits = policy.causal_lm(IDS).logits
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    (logits * weights).sum().backward()
    return logits.detach(), {
        name: p.grad for name, p in policy.model.named_parameters() if p.requires_grad
    }


def lora_layers(policy):
    return [layer for layer in policy.model.modules() if isinstance(layer, LoraLinear)]


def assert_pefts_gradients(policy, gradients, bound):
    """Compare with PEFT's own forward; return its logits."""
    for layer in lora_layers(policy):
        del layer.forward  # PEFT's is back
    logits, expected = logits_and_gradients(policy)
    for name, gradient in expected.items():
        assert gradients[name].dtype == gradient.dtype
        assert (gradients[name] - gradient).norm() <= bound * gradient.norm(), name
    return logits


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 0.05)]
)
def test_forward_and_gradient_equal_pefts(dtype, bound):
    double = dtype == "float64"
    words = (*LORA, f"model.dtype={'float32' if double else dtype}")
    _, policy = disturbed(*words, size=0.05, double=double)
    logits, gradients = logits_and_gradients(policy)
    assert len(lora_layers(policy)) == 14
    expected = assert_pefts_gradients(policy, gradients, bound)
    assert logits.dtype == expected.dtype
    assert (logits - expected).abs().max() <= bound * expected.abs().max()


def test_adapters_are_cast_once_after_each_change_and_never_stale(monkeypatch):
    """All passes make the three casts of 14 layers once; an optimizer's step makes them again."""
    _, policy = disturbed(*LORA, "model.dtype=bfloat16", size=0.05)
    cast, made = lora._cast, set()

    def spy(layer, dtype):
        found = cast(layer, dtype)
        made.add(id(found[0]))
        alive.append(found)  # so that no id is used again
        return found

    alive: list = []
    monkeypatch.setattr(lora, "_cast", spy)
    with torch.inference_mode():  # as an engine decodes
        policy.causal_lm(IDS)
    for _ in range(2):
        logits_and_gradients(policy)
    assert len(made) == 14
    torch.optim.AdamW(trained(policy), lr=0.02).step()
    mine, gradients = logits_and_gradients(policy)
    assert len(made) == 28
    expected = assert_pefts_gradients(policy, gradients, 0.05)
    assert (mine - expected).abs().max() <= 0.05 * expected.abs().max()


def test_a_disabled_adapter_adds_nothing():
    _, policy = disturbed(*LORA, size=0.05)
    with torch.no_grad():
        with policy.reference() as model:
            logits = model(IDS).logits
        plain = load(composed()).causal_lm(IDS).logits
        assert torch.equal(logits, plain)
        assert not torch.allclose(policy.causal_lm(IDS).logits, plain, atol=1e-3)


def test_a_layer_with_a_bias_keeps_it(tmp_path):
    """Qwen's queries, keys and values have one: in the update, and in the mirror that decodes."""
    save_other(tmp_path, "qwen2", num_key_value_heads=1)
    _, policy = disturbed(*LORA, f"model.path={tmp_path}", size=0.05)
    policy.mirror.refresh()
    logits, gradients = logits_and_gradients(policy)
    with torch.no_grad():
        assert torch.allclose(policy.mirror.model(IDS).logits, logits, atol=1e-4)
    assert torch.allclose(logits, assert_pefts_gradients(policy, gradients, 1e-3), atol=1e-4)


def test_a_model_that_names_its_layers_otherwise_gets_adapters_on_all_linear_ones():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 9}
    settings = AutoConfig.for_model("gpt_neox", num_hidden_layers=1, num_attention_heads=2, **sizes)
    other = AutoModelForCausalLM.from_config(settings)
    layers = ["dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"]
    assert lora.lora_targets(other) == layers
    assert lora.lora_targets(load(composed()).causal_lm) == list(lora.LORA_TARGETS)
