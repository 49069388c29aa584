"""What an engine gets from the policy: mirror, merged weights, kept projection, adapter."""

import copy

import pytest
import torch
from compose import composed
from policies import disturbed, untrained
from safetensors.torch import load_file

from pods.policy import attention
from pods.policy.export import copy_adapter, kept_projection, merged_weights, rounding_products
from pods.policy.fsdp import weights_version
from pods.policy.optimizer import make_optimizer
from pods.policy.policy import load

IDS = torch.arange(60)[None] % 19
SHARDED = ("model.tuning=full", "hardware.shard=true", "engine.dtype=bfloat16")


def test_merged_weights_equal_pefts_and_leave_the_policy_alone():
    _, policy = disturbed("model.tuning=lora", "model.lora.alpha=24")
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    merged = {name: w for name, w, _ in merged_weights(policy.model, torch.float32)}
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, before[name])
    expected = copy.deepcopy(policy.model).merge_and_unload().state_dict()
    assert len(merged) == 14  # seven targets in two layers
    start = load(composed()).causal_lm.state_dict()
    for name, weight in merged.items():
        assert torch.allclose(weight, expected[name], atol=1e-6)
        assert not torch.equal(weight, start[name])
    unchanged = set(expected) - set(merged)
    assert all(torch.equal(expected[name], start[name]) for name in unchanged)


@pytest.fixture
def two_targets(monkeypatch):
    monkeypatch.setattr("pods.policy.lora.LORA_TARGETS", ("q_proj", "down_proj"))


def test_a_mirror_merges_the_adapters_and_shares_what_has_none(two_targets):
    _, policy = disturbed("model.tuning=lora", "model.lora.alpha=24")
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    mirror, ids = policy.mirror, IDS[:, :8]
    for _ in range(2):
        with torch.no_grad():
            expected = policy.causal_lm(ids).logits
            mirror.refresh()
            assert torch.allclose(mirror.model(ids).logits, expected, atol=1e-5)
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.5)
    mirror.refresh()
    assert not torch.allclose(mirror.model(ids).logits, expected, atol=1e-3)
    shared = {p.data_ptr() for p in policy.model.parameters()}
    own = [p for p in mirror.model.parameters() if p.data_ptr() not in shared]
    assert len(own) == 4 and not any(p.requires_grad for p in mirror.model.parameters())
    for name, parameter in policy.model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, before[name])


def test_only_float32_adapters_and_sharded_weights_have_a_mirror():
    def has_mirror(*overrides):
        return load(composed(*overrides)).mirror is not None

    assert has_mirror("model.tuning=lora") and has_mirror(*SHARDED)
    assert not has_mirror("model.tuning=full")
    assert not has_mirror("model.tuning=full", "hardware.shard=true")  # on one process
    assert not has_mirror("model.tuning=lora", "model.dtype=bfloat16")


def test_a_mirror_is_the_model_as_it_loads_in_the_engines_dtype():
    """Weights are rounded, and nothing else: not the angles of positions."""
    config = composed(*SHARDED)
    policy = load(config)
    loaded = untrained(config, torch.bfloat16, attn_implementation=attention.NAME)
    mirror = policy.mirror
    with torch.no_grad():
        assert torch.equal(mirror.model(IDS).logits, loaded(IDS).logits)
        mirror.refresh()
        policy.model.get_input_embeddings().weight.mul_(2)  # tied: the output layer's too
        assert torch.equal(mirror.model(IDS).logits, loaded(IDS).logits)
        mirror.refresh()
        loaded.get_input_embeddings().weight.mul_(2)
        assert torch.equal(mirror.model(IDS).logits, loaded(IDS).logits)


def test_linear_layers_beside_a_target_are_yielded_unchanged(two_targets):
    _, policy = disturbed("model.tuning=lora")
    merged = {name: (w, p[1]) for name, w, p in merged_weights(policy.model, torch.float32)}
    start = load(composed()).causal_lm.state_dict()
    assert len(merged) == 14
    for name, (weight, change) in merged.items():
        target = "q_proj" in name or "down_proj" in name
        assert torch.equal(weight, start[name]) == (not target)
        assert (change > 0) == target


def test_without_adapters_all_weights_are_yielded_as_they_are():
    _, policy = disturbed()
    merged = {name: w for name, w, _ in merged_weights(policy.model, torch.float32)}
    assert merged.keys() == dict(policy.causal_lm.named_parameters()).keys()
    for name, parameter in policy.causal_lm.named_parameters():
        assert torch.equal(merged[name], parameter)


@pytest.mark.parametrize("base", ["bfloat16", "float32"])
def test_rounding_products_equal_a_loop_over_the_weights(base):
    config, policy = disturbed("model.tuning=lora", f"model.dtype={base}", size=1e-3)
    weights_before = untrained(config, getattr(torch, base)).state_dict()
    peft = copy.deepcopy(policy.model).float().merge_and_unload().state_dict()
    for name, weight, (kept, total) in merged_weights(policy.model, torch.bfloat16):
        w = weights_before[name].double()
        change = (peft[name].double() - w).flatten()
        rounded = (weight.double() - w.to(torch.bfloat16).double()).flatten()
        assert weight.dtype == torch.bfloat16
        assert total.item() == pytest.approx((change * change).sum().item(), rel=1e-2)
        assert kept.item() == pytest.approx((rounded * change).sum().item(), rel=5e-2)


def test_the_kept_projection_of_two_weights_by_hand():
    """Between 1 and 2 bfloat16 has multiples of 2^-7: one of the changes is kept, one is lost."""
    unit = 2.0**-7
    before, change = torch.tensor([1 + unit / 4, 1.0]), torch.tensor([unit, unit / 4])
    rounded = (before + change).to(torch.bfloat16)
    assert rounded.tolist() == [1 + unit, 1.0]
    kept, total = rounding_products(before, change, rounded).tolist()
    assert kept == unit**2  # from 1 to 1 + unit, times the change
    assert total == unit**2 + (unit / 4) ** 2
    assert kept_projection([kept, total]) == pytest.approx(16 / 17)
    assert kept_projection([0.0, 0.0]) == 1.0  # no change, and none is lost


def test_the_copied_adapter_is_the_policys_in_the_engines_dtype(tmp_path):
    _, policy = disturbed("model.tuning=lora")
    weights, settings = copy_adapter(policy.model, policy.device, torch.bfloat16)
    policy.save(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert weights.keys() == saved.keys() and settings["r"] == policy.model.peft_config["default"].r
    assert all(torch.equal(weights[name], saved[name].bfloat16()) for name in saved)


def test_the_version_grows_with_every_write_to_a_trained_weight(tmp_path):
    config, policy = disturbed("model.tuning=lora")
    versions = [weights_version(policy.model)]
    optimizer = make_optimizer(policy, config.update)
    ids = torch.tensor([[4, 5, 6, 7]])
    policy.model(ids).logits.sum().backward()
    assert weights_version(policy.model) == versions[-1]
    for foreach in (False, True):
        optimizer.param_groups[0]["foreach"] = foreach
        optimizer.step()
        versions.append(weights_version(policy.model))
    policy.save(tmp_path)
    assert weights_version(policy.model) == versions[-1]
    policy.restore(tmp_path)
    versions.append(weights_version(policy.model))
    assert versions == sorted(set(versions))
