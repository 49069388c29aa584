"""Advantages, denominators and the clipped loss, against numbers worked out by hand."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from pods.method.grpo import advantages, importance_weights, policy_loss, token_weights
from pods.method.keep import informative
from pods.method.rules import max_variance


def found(rewards, kept, *, baseline="selected", scale="std", eps=0.0):
    return advantages(np.array(rewards), np.array(kept), baseline=baseline, scale=scale, eps=eps)


@pytest.mark.parametrize(("baseline", "centred", "std"), [
    # of the group (1, 0, 5, 2) the first, second and last are kept: mean 1, deviations 0, -1, 1
    ("selected", [0.0, -1.0, 1.0], 1.0),
    ("full", [-1.0, -2.0, 0.0], np.sqrt((1 + 4 + 9 + 0) / 3)),  # mean 2
    ("leave_one_out", [1 - 2 / 2, 0 - 3 / 2, 2 - 1 / 2], 1.0),
    ("none", [1.0, 0.0, 2.0], 1.0)])  # fmt: skip
def test_every_baseline_with_and_without_the_std_or_mean(baseline, centred, std):
    rewards, kept = [1.0, 0.0, 5.0, 2.0], [0, 1, 3]
    by_mean = found(rewards, kept, baseline=baseline, scale="mean", eps=0.25)
    mean = 2 if baseline == "full" else 1
    assert by_mean == pytest.approx([value / (mean + 0.25) for value in centred])
    plain = found(rewards, kept, baseline=baseline, scale="none", eps=0.25)  # eps has no part in it
    assert plain == pytest.approx(centred)
    scaled = found(rewards, kept, baseline=baseline, eps=0.25)
    assert scaled == pytest.approx([value / (std + 0.25) for value in centred])


def test_classes_are_weighed_by_their_share_of_the_group_over_that_of_the_kept():
    # mean 1; of the zeros 3/6 of the group and 1/3 of the kept, of the twos 3/6 and 2/3
    rewards, kept = [0.0, 0.0, 0.0, 2.0, 2.0, 2.0], [0, 3, 4]
    assert found(rewards, kept, baseline="full", scale="stratified") == pytest.approx(
        [-(3 / 6) / (1 / 3), (3 / 6) / (2 / 3), (3 / 6) / (2 / 3)])  # fmt: skip
    rewards[5] = 8.0  # mean 2; of the eights nothing is kept, and nothing takes their place
    scaled = found(rewards, kept, baseline="full", scale="stratified")
    assert scaled == pytest.approx([-2 * 1.5, 0, 0])


@pytest.mark.parametrize("right", [(0.05, 0.0), (0.3, 0.2), (0.2, 0.7)])
@pytest.mark.parametrize(("rule", "baseline", "scale", "factor", "order"), [
    ("all", "leave_one_out", "none", 1, 1), ("all", "selected", "none", 5 / 6, 1),
    ("all", "selected", "mean", 1, 5), ("random", "full", "mean", 1, 5),
    ("max_variance", "full", "stratified", 5 / 6, 1)])  # fmt: skip
def test_the_expected_gradient_by_brute_force(rule, baseline, scale, factor, order, right):
    """Over all groups of n = 6 of three answers, two of them right: E[g] = w(p) grad p.

    w is that of arXiv:2602.02710, Table 2, of order 1 (accuracy itself) or n - 1, times a factor.
    """
    policy, rewards_of = np.array([*right, 1 - sum(right)]), np.array([1.0, 1.0, 0.0])
    scores, p, total = np.eye(3) - policy, sum(right), np.zeros(3)
    subsets = {"random": [*combinations(range(6), 3)], "all": [range(6)]}.get(rule)
    for drawn in map(list, product(range(3), repeat=6)):
        choices = subsets or [max_variance(rewards_of[drawn], 3)]
        for kept in map(list, choices):
            values = found(rewards_of[drawn], kept, baseline=baseline, scale=scale)
            chance = policy[drawn].prod() / len(choices)
            total += chance * values @ scores[drawn][kept] / len(kept)
    weight = factor * (1 - (1 - p) ** order) / p
    assert total == pytest.approx(weight * policy * (rewards_of - p), abs=1e-12)


@pytest.mark.parametrize("scale", ["std", "mean", "none"])
@pytest.mark.parametrize("baseline", ["selected", "full", "leave_one_out", "none"])
def test_equal_rewards_have_exactly_no_advantage(baseline, scale):
    rewards = [0.1] * 3
    assert np.mean(rewards) != 0.1  # in floating point, nor is the std 0
    expected = 0.1 if baseline == scale == "none" else 0.0
    values = found(rewards, range(3), baseline=baseline, scale=scale, eps=1e-4)
    assert values.tolist() == [expected] * 3
    assert not found([-2.0, 0.0, 1.0], range(3), scale="mean", baseline=baseline).any()  # mean < 0


ROUNDED = [  # equal in real numbers
    [0.1 + 0.2, 0.3, 0.3],
    [0.1 + 0.2 - 0.3, 0.0, 0.0],
    [1e8 * 1.1, 1.1e8, 1.1e8],
    [sum([0.1] * 10), 1.0, 1.0],
]


@pytest.mark.parametrize("scale", ["std", "mean", "none", "stratified"])
@pytest.mark.parametrize("rewards", ROUNDED)
def test_rewards_that_differ_by_rounding_have_no_advantage(rewards, scale):
    assert len(set(rewards)) == 2
    for baseline in ("selected", "full", "leave_one_out"):
        assert not found(rewards, range(3), baseline=baseline, scale=scale).any()
    assert not informative(np.array(rewards), np.ones(3, bool), "reward")


@pytest.mark.parametrize(("size", "step"), [(0, 1e-9), (1, 1e-9), (1e8, 1e-2), (0, 1e-6)])
def test_a_small_difference_of_rewards_is_not_taken_for_rounding(size, step):
    apart = np.array([0.0, step, step]) + size
    expected = np.array([-2, 1, 1]) / np.sqrt(3)  # mean 2/3 of a step, standard deviation 1/√3
    assert found(apart, range(3)) == pytest.approx(expected, rel=1e-5)
    assert informative(apart, np.ones(3, bool), "reward")


def test_classes_whose_rewards_differ_by_rounding_are_one_class():
    rewards = [0.0, 0.3, 0.1 + 0.2, 0.0]  # mean 0.15; half of the group, two thirds of the kept
    weighed = found(rewards, [0, 1, 2], baseline="full", scale="stratified")
    assert weighed == pytest.approx(
        [-0.15 * (1 / 2) / (1 / 3), 0.15 * (1 / 2) / (2 / 3), 0.15 * (1 / 2) / (2 / 3)]
    )


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("sequence_mean", [1 / 3 / 1, 1 / 3 / 3, 1 / 3 / 5]), ("token_mean", [1 / 9] * 3),
     ("group_token_mean", [1 / 2 / 6, 1 / 2 / 3, 1 / 2 / 6]), ("dr_grpo", [1 / 3 / 8] * 3)],
)  # fmt: skip
def test_token_weights(aggregation, expected):
    """Sequences of 1, 3 and 5 tokens, of which the first and the last are a group."""
    weights = token_weights(torch.tensor([1, 3, 5]), torch.tensor([9, 5, 9]), aggregation, 8)
    assert weights.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("ratio", "advantage", "high", "loss", "gradient", "clipped"), [
    (1.0, 2.0, 0.2, -2.0, -2.0, 0),  # on-policy: the plain policy gradient
    (1.1, 2.0, 0.2, -2.2, -2.2, 0),  # inside the clip: d(ratio A)/dlogp = ratio A
    (1.5, 2.0, 0.2, -2.4, 0.0, 1),  # good and already likelier: held at 1.2 A
    (0.5, 2.0, 0.2, -1.0, -1.0, 0),  # good but less likely: not held
    (1.5, -2.0, 0.2, 3.0, 3.0, 0),  # bad but likelier: not held
    (0.5, -2.0, 0.2, 1.6, 0.0, 1),  # bad and already less likely: held at 0.8 A
    (1.25, 2.0, 0.28, -2.5, -2.5, 0),  # clip-higher lets it pass
])  # fmt: skip
def test_clipped_loss_and_its_gradient(ratio, advantage, high, loss, gradient, clipped):
    logprob = torch.tensor([np.log(ratio)], dtype=torch.float64, requires_grad=True)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    found = policy_loss(logprob, zero, advantage * one, one, clip_low=0.2, clip_high=high)
    found.total.backward()
    assert (found.total.item(), found.clipped.item()) == (pytest.approx(loss), clipped)
    assert logprob.grad.item() == pytest.approx(gradient, abs=1e-12)


# three sequences, cap 3: one over it as a whole alone, one at a token alone, one of one token
RATIOS, LENGTHS = [2.0, 2.0, 4.0, 0.25, 0.5, 5.0], torch.tensor([2, 3, 1])


@pytest.mark.parametrize(("kind", "weights", "cut"), [
    ("off", [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]),
    ("token_truncate", [2, 2, 3, 0.25, 0.5, 3], [0, 0, 1, 0, 0, 1]),
    ("token_mask", [2, 2, 0, 0.25, 0.5, 0], [0, 0, 1, 0, 0, 1]),
    ("sequence_mask", [0, 0, 0.5, 0.5, 0.5, 0], [1, 1, 0, 0, 0, 1]),  # products 4, 0.5, 5
])  # fmt: skip
def test_importance_weights(kind, weights, cut):
    engine = torch.tensor([-0.5, -1.0, -2.0, -0.1, -3.0, -2.5], dtype=torch.float64)
    old = engine + torch.tensor(RATIOS, dtype=torch.float64).log()
    found, cuts = importance_weights(old, engine, LENGTHS, kind=kind, cap=3.0)
    assert found.tolist() == pytest.approx(weights)
    assert cuts.tolist() == [bool(c) for c in cut]


BOUNDED = {"token_truncate": 0.5, "token_mask": 0.0, "sequence_mask": 0.0}  # where the cap is 0.5


@pytest.mark.parametrize("kind", BOUNDED)
def test_a_ratio_that_equals_the_cap_is_not_cut_and_nan_is_not_hidden(kind):
    logprobs = torch.tensor([-1.0, -2.0])  # of engine and trainer alike: each ratio is exactly 1
    for cap, weight, cut in ((1.0, 1.0, False), (0.5, BOUNDED[kind], True)):
        found, cuts = importance_weights(logprobs, logprobs, torch.tensor([2]), kind=kind, cap=cap)
        assert found.tolist() == [weight] * 2
        assert cuts.tolist() == [cut] * 2
    engine = torch.tensor([float("nan"), -1.0])
    found, _ = importance_weights(torch.zeros(2), engine, torch.tensor([1, 1]), kind=kind, cap=3.0)
    assert found.isnan().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_importance_weights_of_ratios_that_overflow_and_underflow(dtype):
    old, engine = torch.zeros(9, dtype=dtype), torch.zeros(9, dtype=dtype)
    engine[:4], old[4:8] = -800.0, -800.0  # four ratios of e^800, four of e^-800, one of 1
    lengths = torch.tensor([4, 4, 1])
    for kind, weight in (("token_truncate", 3.0), ("token_mask", 0.0), ("sequence_mask", 0.0)):
        found, cuts = importance_weights(old, engine, lengths, kind=kind, cap=3.0)
        assert found.tolist() == [weight] * 4 + [0.0] * 4 + [1.0]
        assert cuts.tolist() == [True] * 4 + [False] * 5


def test_importance_weights_of_half_precision_are_in_float32():
    old, engine = torch.tensor([0.0]).half(), torch.tensor([-12.0]).half()
    found, _ = importance_weights(old, engine, torch.tensor([1]), kind="token_mask", cap=1e6)
    assert found.tolist() == pytest.approx([np.exp(12)])  # infinite in float16


def test_importance_multiplies_the_surrogate_and_not_the_kl():
    """Ln ratio 0 and A = 2, ln ratio ln 1.5 and A = -2; token weight 0.5, KL to twice as likely."""
    logprobs = torch.tensor([0.0, np.log(1.5)], dtype=torch.float64, requires_grad=True)
    found = policy_loss(
        logprobs, torch.zeros(2), torch.tensor([2.0, -2.0]), torch.full((2,), 0.5),
        clip_low=0.2, clip_high=0.2, kl_beta=0.04, importance=torch.tensor([3.0, 0.25]),
        reference_logprobs=logprobs.detach() + np.log(2))  # fmt: skip
    found.total.backward()
    kl = 2 * 0.04 * 0.5 * (1 - np.log(2))
    assert found.total.item() == pytest.approx(-0.5 * (3 * 2 - 0.25 * 3) + kl)
    # of the surrogate -weight rho ratio A, of the KL 0.04 * 0.5 * -1
    assert logprobs.grad.tolist() == pytest.approx([-3.0 - 0.02, 0.375 - 0.02])
