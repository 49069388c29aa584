"""AdamW with the run's settings, compared with a calculation by hand and with torch's."""

from types import SimpleNamespace

import pytest
import torch
from compose import composed
from torch import nn

from pods.config import checks
from pods.config.parse import ConfigError
from pods.policy.fsdp import weights_version
from pods.policy.optimizer import (
    make_optimizer,
    nonfinite,
    restore_optimizer,
    rolled_back_on_error,
    save_optimizer,
    trained_weights,
)


def scalar(value):
    return nn.Parameter(torch.tensor(value, dtype=torch.float64))


def test_two_steps_of_adamw_by_hand_and_by_torch():
    """Decay 1 - 0.1 * 0.3 = 0.97 before each step; moments divided by 1 - 0.5^t and 1 - 0.6^t."""
    settings = composed("update.lr=0.1", "update.betas=[0.5,0.6]", "update.weight_decay=0.3").update
    one, other, frozen = scalar(2.0), scalar(2.0), scalar(5.0).requires_grad_(False)
    model = nn.ParameterDict({"one": one, "frozen": frozen})
    mine = make_optimizer(SimpleNamespace(model=model), settings)
    theirs = torch.optim.AdamW([other], lr=0.1, betas=(0.5, 0.6), weight_decay=0.3)
    [weight] = trained_weights(mine)
    assert weight is one
    by_hand = [
        1.84,  # 2 * 0.97 - 0.1 * (0.25 / 0.5) / sqrt(0.1 / 0.4)
        1.84 * 0.97 + 0.1 / 3,  # + 0.1 * (0.125 / 0.75) / sqrt(0.16 / 0.64)
    ]
    for gradient, expected in zip((0.5, -0.5), by_hand, strict=True):
        for parameter, optimizer in ((one, mine), (other, theirs)):
            parameter.grad = torch.tensor(gradient, dtype=torch.float64)
            optimizer.step()
        assert one.item() == pytest.approx(expected, rel=1e-6)
        assert one.item() == other.item()


def eight_bits():
    """Return a layer whose weight has 8-bit moments and whose bias is too small, and AdamW."""
    pytest.importorskip("bitsandbytes")
    overrides = ("update.optimizer=adamw_8bit", "update.lr=0.01", "update.weight_decay=0.1")
    settings = composed(*overrides, "dry_run=true").update
    torch.manual_seed(1)
    model = nn.Linear(64, 128)
    return model, make_optimizer(SimpleNamespace(model=model), settings)


def steps(model, optimizer, which):
    for i in which:
        generator = torch.Generator().manual_seed(i)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_with_8_bit_moments_a_first_step_is_adamws_and_the_version_grows():
    """The first step is -lr sign(g) after the decay, whatever the moments are rounded to."""
    model, optimizer = eight_bits()
    before, version = model.weight.detach().clone(), weights_version(model)
    steps(model, optimizer, [0])
    expected = before * (1 - 0.01 * 0.1) - 0.01 * model.weight.grad.sign()
    torch.testing.assert_close(model.weight.detach(), expected, atol=1e-5, rtol=0)
    assert weights_version(model) > version
    assert optimizer.state[model.weight]["state1"].dtype == torch.uint8
    assert optimizer.state[model.bias]["state1"].dtype == torch.float32


def test_8_bit_moments_are_restored_to_the_bit(tmp_path):
    model, optimizer = eight_bits()
    steps(model, optimizer, [0, 1])
    save_optimizer(optimizer, tmp_path / "optimizer.safetensors")
    fresh, restored = eight_bits()
    fresh.load_state_dict(model.state_dict())
    restore_optimizer(restored, tmp_path / "optimizer.safetensors")
    for each in ((model, optimizer), (fresh, restored)):
        steps(*each, [2, 3])
    assert same(model, fresh)


def test_a_failed_update_leaves_8_bit_moments_as_they_were():
    (model, optimizer), (failed, rolled_back) = eight_bits(), eight_bits()
    steps(model, optimizer, [0])
    steps(failed, rolled_back, [0])
    with pytest.raises(ZeroDivisionError), rolled_back_on_error(rolled_back, keep_copy=True):
        steps(failed, rolled_back, [7])
        raise ZeroDivisionError
    for each in ((model, optimizer), (failed, rolled_back)):
        steps(*each, [1])
    assert same(model, failed)


def test_8_bit_moments_that_are_not_finite_are_found():
    model, optimizer = eight_bits()
    steps(model, optimizer, [0])
    assert nonfinite(optimizer) is None
    optimizer.state[model.weight]["absmax1"][0] = torch.nan
    assert nonfinite(optimizer) == "the optimizer's state is NaN or infinite"


def test_8_bit_moments_need_bitsandbytes_and_whole_weights(monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"bitsandbytes is not installed: .*pods-rl\[quantized\]"):
        composed("update.optimizer=adamw_8bit")
    sharded = ("hardware=h200", "hardware.shard=true", "model.tuning=full", "dry_run=true")
    with pytest.raises(ConfigError, match=r"must be adamw where hardware\.shard=true"):
        composed("update.optimizer=adamw_8bit", *sharded)
