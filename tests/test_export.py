"""What an engine gets of the policy: the merge, what rounding keeps of it, the adapter."""

import copy

import pytest
import torch
from compose import composed
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from pods.policy import export
from pods.policy.export import merged_weights, save_adapter
from pods.policy.load import load
from pods.policy.merged import Merged, mergeable
from pods.policy.optimizer import make_optimizer
from pods.runs.home import weights


def disturbed(*overrides, size=0.02):
    """A policy whose trained weights were moved."""
    config = composed(*overrides)
    policy = load(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return config, policy


def untrained(config, dtype):
    return AutoModelForCausalLM.from_pretrained(weights(config.model), dtype=dtype)


def test_the_merge_is_pefts_own_and_leaves_the_policy_alone():
    _, policy = disturbed("model.tuning=lora", "model.lora.alpha=24")
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    merged = {name: w for name, w, _, _ in merged_weights(policy, torch.float32, {})}
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, before[name])
    expected = copy.deepcopy(policy.model).merge_and_unload().state_dict()
    assert len(merged) == 14  # seven targets in two layers
    start = load(composed()).causal_lm.state_dict()
    for name, weight in merged.items():
        assert torch.allclose(weight, expected[name], atol=1e-6)
        assert not torch.equal(weight, start[name])
    same = set(expected) - set(merged)
    assert all(torch.equal(expected[name], start[name]) for name in same)


def test_the_merged_copy_follows_the_adapters_and_shares_what_has_none():
    words = ("model.lora.targets=[q_proj,down_proj]", "model.lora.alpha=24")
    _, policy = disturbed("model.tuning=lora", *words)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    merged, ids = Merged(policy), torch.arange(1, 9)[None]
    for _ in range(2):
        with torch.no_grad():
            expected = policy.causal_lm(ids).logits
            merged.follow()
            found = merged.model(ids).logits
        assert torch.allclose(found, expected, atol=1e-5)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.5)
    merged.follow()
    assert not torch.allclose(merged.model(ids).logits, expected, atol=1e-3)
    own = {p.data_ptr() for p in merged.model.parameters()}
    assert len(own - {p.data_ptr() for p in policy.model.parameters()}) == len(merged.layers) == 4
    assert not any(p.requires_grad for p in (own.weight for _, own in merged.layers))
    for name, parameter in policy.model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, before[name])


def test_only_float32_adapters_are_merged_to_generate_from():
    def on(*overrides):
        return mergeable(load(composed(*overrides)))

    assert on("model.tuning=lora") and not on("model.tuning=full")
    assert not on("model.tuning=lora", "model.dtype=bfloat16")


def test_what_lies_beside_a_target_comes_too_unchanged():
    _, policy = disturbed("model.tuning=lora", "model.lora.targets=[q_proj,up_proj]")
    found = {name: (w, d) for name, w, _, d in merged_weights(policy, torch.float32, {})}
    start = load(composed()).causal_lm.state_dict()
    assert len(found) == 14
    for name, (weight, change) in found.items():
        target = "q_proj" in name or "up_proj" in name
        assert torch.equal(weight, start[name]) == (not target)
        assert (change > 0) == target


def test_only_linear_layers_can_be_targets():
    with pytest.raises(ValueError, match=r"model\.lora\.targets: embed_tokens is no linear layer"):
        load(composed("model.tuning=lora", "model.lora.targets=[embed_tokens,q_proj]"))


def test_where_all_weights_are_trained_they_are_handed_over_as_they_are():
    _, policy = disturbed()
    found = {name: w for name, w, _, _ in merged_weights(policy, torch.float32, {})}
    assert found.keys() == dict(policy.causal_lm.named_parameters()).keys()
    for name, parameter in policy.causal_lm.named_parameters():
        assert torch.equal(found[name], parameter)


@pytest.mark.parametrize("base", ["bfloat16", "float32"])
def test_the_kept_projection_is_what_a_loop_over_the_weights_finds(base):
    config, policy = disturbed("model.tuning=lora", f"model.dtype={base}", size=1e-3)
    weights_before = untrained(config, getattr(torch, base)).state_dict()
    peft = copy.deepcopy(policy.model).float().merge_and_unload().state_dict()
    for name, weight, carried, wanted in merged_weights(policy, torch.bfloat16, {}):
        w = weights_before[name].double()
        change = (peft[name].double() - w).flatten()
        kept = (weight.double() - w.to(torch.bfloat16).double()).flatten()
        assert weight.dtype == torch.bfloat16
        assert wanted.item() == pytest.approx((change * change).sum().item(), rel=1e-2)
        assert carried.item() == pytest.approx((kept * change).sum().item(), rel=5e-2)


def test_the_kept_projection_of_two_weights_by_hand():
    """Between 1 and 2 bfloat16 knows multiples of 2^-7: of the changes one arrives, one is lost."""
    unit = 2.0**-7
    before, change = torch.tensor([1 + unit / 4, 1.0]), torch.tensor([unit, unit / 4])
    found = export._rounded("name", before, change, before + change, torch.bfloat16)
    name, weight, carried, wanted = found
    assert name == "name" and weight.tolist() == [1 + unit, 1.0]
    assert carried.item() == unit**2  # from 1 to 1 + unit, times the change
    assert wanted.item() == unit**2 + (unit / 4) ** 2


def test_a_coarse_merge_onto_a_coarse_base_loses_small_changes_and_keeps_large_ones():
    kept = []
    for size in (1e-5, 0.1):
        _, policy = disturbed("model.tuning=lora", "model.dtype=bfloat16", size=size)
        sums = [(c, w) for _, _, c, w in merged_weights(policy, torch.bfloat16, {})]
        kept.append((sum(c for c, _ in sums) / sum(w for _, w in sums)).item())
    assert 0 <= kept[0] < 0.9
    assert 0.97 < kept[1] < 1.03


def test_the_change_of_all_weights_is_measured_from_the_start():
    start = {name: p.detach().clone() for name, p in load(composed()).causal_lm.named_parameters()}
    _, policy = disturbed(size=0.1)
    for name, weight, carried, wanted in merged_weights(policy, torch.bfloat16, start):
        parameter = dict(policy.causal_lm.named_parameters())[name]
        assert torch.equal(weight, parameter.to(torch.bfloat16))
        assert wanted.item() == pytest.approx(((parameter - start[name]) ** 2).sum().item())
        assert carried / wanted == pytest.approx(1, abs=0.02)


def test_the_adapter_on_disk_is_the_policys(tmp_path):
    config, policy = disturbed("model.tuning=lora")
    save_adapter(policy, tmp_path / "adapter", torch.bfloat16)
    state = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    base = untrained(config, torch.float32)
    again = PeftModel.from_pretrained(base, tmp_path / "adapter")
    ids = torch.tensor([[4, 5, 6, 7]])
    assert torch.allclose(again(ids).logits, policy.model(ids).logits, atol=0.2)
    assert not torch.allclose(base.eval()(ids).logits, load(config).model(ids).logits, atol=0.2)


def test_the_version_grows_with_every_write_to_a_trained_weight(tmp_path):
    config, policy = disturbed("model.tuning=lora")
    seen = [policy.version]
    optimizer = make_optimizer(policy, config.update)
    ids = torch.tensor([[4, 5, 6, 7]])
    policy.model(ids).logits.sum().backward()
    assert policy.version == seen[-1]
    for foreach in (False, True):
        optimizer.param_groups[0]["foreach"] = foreach
        optimizer.step()
        seen.append(policy.version)
    policy.save(tmp_path)
    assert policy.version == seen[-1]
    policy.restore(tmp_path)
    seen.append(policy.version)
    assert seen == sorted(set(seen))
