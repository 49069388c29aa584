"""AdamW with the run's settings, compared with a calculation by hand and with torch's."""

from types import SimpleNamespace

import pytest
import torch
from compose import composed
from torch import nn

from pods.policy.optimizer import make_optimizer, trained_weights


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
