"""Advantages, denominators and the clipped loss, against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from pods.method.grpo import advantages, importance_weights, policy_loss, token_weights

EVERYTHING = np.arange(4)


def test_advantages_of_the_kept_with_both_stds():
    rewards = np.array([0.0, 9.0, 1.0, 9.0])
    kept = np.array([0, 2])  # mean 0.5; sample std sqrt(0.5), population std 0.5
    sample = advantages(rewards, kept, over="selected", ddof=1, eps=0.0)
    population = advantages(rewards, kept, over="selected", ddof=0, eps=0.0)
    assert sample == pytest.approx([-np.sqrt(0.5), np.sqrt(0.5)])
    assert population == pytest.approx([-1.0, 1.0])


def test_advantages_of_one_right_answer_of_four():
    # mean 0.25, sample std sqrt((3 / 16 + 9 / 16) / 3) = 0.5
    found = advantages(np.array([0.0, 0.0, 1.0, 0.0]), EVERYTHING, over="selected", ddof=1, eps=0.0)
    assert found.tolist() == [-0.5, -0.5, 1.5, -0.5]


def test_advantages_over_the_full_group_and_eps():
    rewards = np.array([0.0, 1.0, 1.0, 0.0])  # mean 0.5, population std 0.5
    found = advantages(rewards, np.array([1, 3]), over="full", ddof=0, eps=0.5)
    assert found == pytest.approx([0.5, -0.5])


def test_equal_rewards_have_exactly_no_advantage():
    rewards = np.full(3, 0.1)
    assert rewards.mean() != 0.1  # in floating point, nor is the std 0
    for over in ("selected", "full"):
        found = advantages(rewards, np.arange(3), over=over, ddof=1, eps=1e-4)
        assert found.tolist() == [0.0] * 3


def test_without_normalisation_the_advantage_is_the_reward():
    rewards = np.array([0.0, 1.0, 1.1])
    for kept in ([0, 2], [1, 1]):
        found = advantages(rewards, np.array(kept), over="none", ddof=1, eps=1e-4)
        assert found.tolist() == rewards[kept].tolist()


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


# three sequences, cap 3: one over it as a whole alone, one at a token alone, one of one token
RATIOS, LENGTHS = [2.0, 2.0, 4.0, 0.25, 0.5, 5.0], torch.tensor([2, 3, 1])


@pytest.mark.parametrize(
    ("kind", "weights", "cut"),
    [
        ("off", [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]),
        ("token_truncate", [2, 2, 3, 0.25, 0.5, 3], [0, 0, 1, 0, 0, 1]),
        ("token_mask", [2, 2, 0, 0.25, 0.5, 0], [0, 0, 1, 0, 0, 1]),
        ("sequence_mask", [0, 0, 0.5, 0.5, 0.5, 0], [1, 1, 0, 0, 0, 1]),  # products 4, 0.5, 5
    ],
)
def test_importance_weights(kind, weights, cut):
    engine = torch.tensor([-0.5, -1.0, -2.0, -0.1, -3.0, -2.5], dtype=torch.float64)
    old = engine + torch.tensor(RATIOS, dtype=torch.float64).log()
    found = importance_weights(old, engine, LENGTHS, kind=kind, cap=3.0)
    assert found.weights.tolist() == pytest.approx(weights)
    assert found.cut.tolist() == [bool(c) for c in cut]


BOUNDED = {"token_truncate": 0.5, "token_mask": 0.0, "sequence_mask": 0.0}  # where the cap is 0.5


@pytest.mark.parametrize("kind", BOUNDED)
def test_a_ratio_that_equals_the_cap_is_not_cut(kind):
    logprobs = torch.tensor([-1.0, -2.0])  # of engine and trainer alike: each ratio is exactly 1
    for cap, weight, cut in ((1.0, 1.0, False), (0.5, BOUNDED[kind], True)):
        found = importance_weights(logprobs, logprobs, torch.tensor([2]), kind=kind, cap=cap)
        assert found.weights.tolist() == [weight] * 2
        assert found.cut.tolist() == [cut] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_importance_weights_of_ratios_that_overflow_and_underflow(dtype):
    old, engine = torch.zeros(9, dtype=dtype), torch.zeros(9, dtype=dtype)
    engine[:4], old[4:8] = -800.0, -800.0  # four ratios of e^800, four of e^-800, one of 1
    lengths = torch.tensor([4, 4, 1])
    for kind, weight in (("token_truncate", 3.0), ("token_mask", 0.0), ("sequence_mask", 0.0)):
        found = importance_weights(old, engine, lengths, kind=kind, cap=3.0)
        assert found.weights.tolist() == [weight] * 4 + [0.0] * 4 + [1.0]
        assert found.cut.tolist() == [True] * 4 + [False] * 5


def test_importance_weights_of_half_precision_are_in_float32():
    old, engine = torch.tensor([0.0]).half(), torch.tensor([-12.0]).half()
    found = importance_weights(old, engine, torch.tensor([1]), kind="token_mask", cap=1e6)
    assert found.weights.tolist() == pytest.approx([np.exp(12)])  # infinite in float16


@pytest.mark.parametrize("kind", BOUNDED)
def test_a_logprob_that_is_nan_is_not_hidden_by_a_mask(kind):
    engine = torch.tensor([float("nan"), -1.0])
    found = importance_weights(torch.zeros(2), engine, torch.tensor([1, 1]), kind=kind, cap=3.0)
    assert found.weights.isnan().tolist() == [True, False]


def weighted_loss(importance):
    """Ln ratio 0 and A = 2, ln ratio ln 1.5 and A = -2; token weight 0.5; KL as in its test."""
    logprobs = torch.tensor([0.0, np.log(1.5)], dtype=torch.float64, requires_grad=True)
    found = policy_loss(
        logprobs, torch.zeros(2), torch.tensor([2.0, -2.0]), torch.full((2,), 0.5),
        clip_low=0.2, clip_high=0.2, kl_beta=0.04, importance=importance,
        reference_logprobs=logprobs.detach() + np.log(2),
    )  # fmt: skip
    found.total.backward()
    return found.total.detach(), logprobs.grad


def test_importance_multiplies_the_surrogate_and_not_the_kl():
    total, gradient = weighted_loss(torch.tensor([3.0, 0.25]))
    kl = 2 * 0.04 * 0.5 * (1 - np.log(2))
    assert total.item() == pytest.approx(-0.5 * (3 * 2 - 0.25 * 3) + kl)
    # of the surrogate -weight rho ratio A, of the KL 0.04 * 0.5 * -1
    assert gradient.tolist() == pytest.approx([-3.0 - 0.02, 0.375 - 0.02])


def test_no_importance_is_a_weight_of_one_bit_for_bit():
    generator = torch.Generator().manual_seed(0)
    logprobs, old, signs, weights, reference = torch.randn(5, 50, generator=generator)
    plain, ones = (
        policy_loss(
            logprobs, old, signs, weights, clip_low=0.2, clip_high=0.3, kl_beta=0.1,
            reference_logprobs=reference, importance=importance,
        )
        for importance in (None, torch.ones(50))
    )  # fmt: skip
    for mine, theirs in ((plain.total, ones.total), (plain.clipped, ones.clipped)):
        assert torch.equal(mine, theirs)


def test_the_loss_of_several_tokens_by_hand():
    """Two tokens of a good sequence, two of a bad one, clip 0.8 to 1.3, KL against half and twice.

    Surrogates 2 * 1, 2 * 1.3 (held), -4 * 0.8 (held), -4 * 1.5; the KL of a reference twice as
    likely is 2 - ln 2 - 1, of one half as likely 0.5 + ln 2 - 1.
    """
    ratios = torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=torch.float64)
    old = torch.tensor([-1.0, -2.0, -0.5, -3.0], dtype=torch.float64)
    logprobs = (old + ratios.log()).requires_grad_()
    found = policy_loss(
        logprobs, old, torch.tensor([2.0, 2.0, -4.0, -4.0]), torch.tensor([0.5, 0.5, 0.125, 0.125]),
        clip_low=0.2, clip_high=0.3, kl_beta=0.1,
        reference_logprobs=logprobs.detach() + torch.tensor([2.0, 0.5, 1.0, 1.0]).log(),
    )  # fmt: skip
    found.total.backward()
    kl = 0.5 * (1 - np.log(2)) + 0.5 * (np.log(2) - 0.5)
    assert found.kl.item() == pytest.approx(kl)
    assert found.total.item() == pytest.approx(0.1 * kl - (1.0 + 1.3 - 0.4 - 0.75))
    assert found.clipped.item() == 2
    # -weight ratio A where the clip does not hold, and beta weight (1 - reference / policy)
    expected = [-1.0 - 0.05, 0.1 * 0.5 * 0.5, 0.0, 0.125 * 1.5 * 4]
    assert logprobs.grad.tolist() == pytest.approx(expected)
