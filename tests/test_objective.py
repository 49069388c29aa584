"""Advantages, denominators and the clipped loss, against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from pods.method.objective import advantages, policy_loss, token_weights

EVERYTHING = np.arange(4)


def test_advantages_of_the_kept_with_both_stds():
    rewards = np.array([0.0, 9.0, 1.0, 9.0])
    kept = np.array([0, 2])  # mean 0.5; sample std sqrt(0.5), population std 0.5
    sample = advantages(rewards, kept, over="selected", ddof=1, eps=0.0)
    population = advantages(rewards, kept, over="selected", ddof=0, eps=0.0)
    assert sample == pytest.approx([-np.sqrt(0.5), np.sqrt(0.5)])
    assert population == pytest.approx([-1.0, 1.0])


def test_advantages_over_the_full_group_and_eps():
    rewards = np.array([0.0, 1.0, 1.0, 0.0])  # mean 0.5, population std 0.5
    found = advantages(rewards, np.array([1, 3]), over="full", ddof=0, eps=0.5)
    assert found == pytest.approx([0.5, -0.5])


def test_equal_rewards_have_exactly_no_advantage():
    rewards = np.full(4, 0.1)  # whose mean is not exactly 0.1 in floating point
    for over in ("selected", "full"):
        assert advantages(rewards, EVERYTHING, over=over, ddof=1, eps=1e-4).tolist() == [0.0] * 4


def test_advantages_ignore_a_shift_of_the_rewards():
    rewards = np.array([0.3, -1.0, 2.0, 0.0])
    settings = {"over": "selected", "ddof": 1, "eps": 1e-4}
    assert advantages(rewards + 5, EVERYTHING, **settings) == pytest.approx(
        advantages(rewards, EVERYTHING, **settings)
    )


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("sequence_mean", [1 / 2 / 1, 1 / 2 / 3]),
        ("token_mean", [1 / 4, 1 / 4]),
        ("dr_grpo", [1 / 2 / 8, 1 / 2 / 8]),
    ],
)
def test_token_weights(aggregation, expected):
    assert token_weights(torch.tensor([1, 3]), aggregation, 8).tolist() == pytest.approx(expected)


def loss_and_gradient(ratio, advantage, low=0.2, high=0.2):
    logprob = torch.tensor([np.log(ratio)], dtype=torch.float64, requires_grad=True)
    loss = policy_loss(
        logprob,
        torch.zeros(1, dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.ones(1, dtype=torch.float64),
        clip_low=low,
        clip_high=high,
    )
    loss.total.backward()
    return loss.total.item(), logprob.grad.item(), loss.clipped.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, 0.2, -2.0, -2.0, 0),  # on-policy: the plain policy gradient
        (1.1, 2.0, 0.2, -2.2, -2.2, 0),  # inside the clip: d(ratio A)/dlogp = ratio A
        (1.5, 2.0, 0.2, -2.4, 0.0, 1),  # good and already likelier: held at 1.2 A
        (0.5, 2.0, 0.2, -1.0, -1.0, 0),  # good but less likely: not held
        (1.5, -2.0, 0.2, 3.0, 3.0, 0),  # bad but likelier: not held
        (0.5, -2.0, 0.2, 1.6, 0.0, 1),  # bad and already less likely: held at 0.8 A
        (1.25, 2.0, 0.28, -2.5, -2.5, 0),  # clip-higher lets it pass
    ],
)
def test_clipped_loss_and_its_gradient(ratio, advantage, high, loss, gradient, clipped):
    found = loss_and_gradient(ratio, advantage, high=high)
    assert found == (pytest.approx(loss), pytest.approx(gradient, abs=1e-12), clipped)


def test_kl_term():
    # ref - logp = ln 2: exp - gap - 1 = 2 - 0.6931 - 1 = 0.3069, weighted by 0.5, beta 0.04
    logprob = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    loss = policy_loss(
        logprob, logprob.detach(), torch.zeros(1), torch.tensor([0.5]),
        clip_low=0.2, clip_high=0.2, kl_beta=0.04,
        reference_logprobs=torch.log(torch.tensor([2.0], dtype=torch.float64)),
    )  # fmt: skip
    loss.total.backward()
    assert loss.kl.item() == pytest.approx(0.5 * (1 - np.log(2)))
    assert loss.total.item() == pytest.approx(0.04 * 0.5 * (1 - np.log(2)))
    # d/dlogp of (e^g - g - 1), g = ref - logp, is 1 - e^g = -1
    assert logprob.grad.item() == pytest.approx(-0.04 * 0.5)
