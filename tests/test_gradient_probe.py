"""`pods probe`: sketches are gradients, and estimators have the moments that a hand works out."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from compose import composed
from policies import disturb, plain_logprobs
from studies import refused

from pods.cli.main import main
from pods.method.grpo import advantages
from pods.method.rules import RULES
from pods.policy.policy import load
from pods.policy.scoring import UpdateContext
from pods.types import Group, Rollout
from pods_lab.probe.moments import Estimator, Moments, moments, summarise
from pods_lab.probe.sketches import projection, sketches


def estimator(rule, n, m, baseline, scale):
    advantage = partial(advantages, baseline=baseline, scale=scale, eps=0.0)
    return Estimator(f"{rule}, {baseline}, {scale}", RULES[rule], advantage, n, m)


def two_armed(estimators, prompts_per_step=1, baseline=0):
    """Summarise on a policy of two arms, drawn 2 of 4 times each; arm 1 has the reward 1.

    With the logit t and p = sigmoid(t) = 1/2 the gradients of log p(arm) in t are 1/2 and -1/2.
    """
    rewards = np.array([1.0, 0.0, 0.0, 1.0])
    pool = Group(rewards, rewards > 0, np.ones(4, dtype=np.int64))
    gradients = np.tile(rewards - 0.5, 2)
    found = moments(np.outer(gradients, gradients), [pool, pool], estimators, 6000, seed=0)
    seconds = [0.5] * len(estimators)
    return summarise(found, estimators, seconds, baseline, prompts_per_step, 10, seed=0)


def test_a_two_armed_policy_by_hand():
    """Of two rollouts 2 in 3 pairs are mixed (4 of the 6 pairs of the pool); others give 0.

    A mixed pair with advantages 1 and -1 gives (1/2 + 1/2) / 2 = 1/2: mean 1/3, mean square 1/6.
    The gradient of the expected reward is the sample covariance, (4 * 1/4) / 3 = 1/3.
    """
    [row] = two_armed([estimator("all", 2, 2, "leave_one_out", "none")]).itertuples()
    assert (row.scale, row.bias) == (pytest.approx(1, rel=0.03), pytest.approx(0, abs=1e-6))
    assert row.variance == pytest.approx((1 / 6 - 1 / 9) / (1 / 9), rel=0.08)
    assert row.cosine == pytest.approx((1 / 3) / (1 / 6) ** 0.5, rel=0.02)
    assert row.progress == pytest.approx(row.cosine / 3)
    assert row.per_second == pytest.approx(2 * row.progress)
    # the mean of 4 prompts has a quarter of the variance: 1/9 + (1/6 - 1/9) / 4 = 1/8
    [row] = two_armed([estimator("all", 2, 2, "leave_one_out", "none")], 4).itertuples()
    assert row.cosine == pytest.approx((1 / 3) / (1 / 8) ** 0.5, rel=0.02)


def test_scaled_and_selected_estimators_by_hand():
    """Divided by the std of a mixed pair, 1/2 ** 0.5, advantages are 0.707 instead of 1/2.

    The extremes of all 4 rollouts are always mixed, and all right ones never contrast.
    """
    selected = estimator("all", 2, 2, "selected", "none")
    table = two_armed([
        selected,
        estimator("all", 2, 2, "selected", "std"),
        estimator("max_variance", 4, 2, "leave_one_out", "none"),
        estimator("max_reward", 4, 2, "selected", "none"),
    ], baseline=2)  # fmt: skip
    assert table["scale"].tolist() == pytest.approx([1 / 2, 2**-0.5, 3 / 2, 0], rel=0.03)
    assert table.cosine.tolist()[2] == pytest.approx(1)
    assert np.isnan(table.cosine.tolist()[3])
    assert table.relative.tolist()[2] == 1
    pair, each = np.ones((2, 2)), np.ones((1, 2, 2))  # a mean at an angle of cosine 0.6
    turned = summarise(Moments(pair, 0.6 * each, each, pair[:1]), [selected], [1.0], 0, 1, 9, 0)
    assert turned.bias.to_list() == pytest.approx([0.8])


def test_sketches_preserve_inner_products_and_an_identity_changes_nothing():
    vectors = torch.from_numpy(np.random.default_rng(0).normal(1, 1, (12, 3000))).float()
    exact = vectors @ vectors.T
    same, project = (projection(3000, size, seed=0) for size in (3000, 1000))
    assert torch.equal(torch.stack([same(one) for one in vectors]), vectors)
    sketched = torch.stack([project(one) for one in vectors])
    assert sketched.shape == (12, 1000)
    # five standard deviations of the bound in the docstring; |x|² is about 6000
    assert (sketched @ sketched.T - exact).abs().max() < 5 * (2 * 6400**2 / 1000) ** 0.5
    errors = [float(projection(3000, 100, s)(vectors[0]).square().sum() / exact[0, 0]) - 1
              for s in range(200)]  # fmt: skip
    assert np.mean(errors) == pytest.approx(0, abs=0.03)  # std of one: (2 / 100) ** 0.5


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_a_sketch_is_the_gradient_of_a_rollouts_log_prob(tuning):
    config = composed(f"model.tuning={tuning}")
    policy = load(config)
    trained = {name: one for name, one in policy.model.named_parameters() if one.requires_grad}
    assert all("lora_" in name for name in trained) == (tuning == "lora")
    disturb(trained.values(), 0.01)  # at the start adapters have no effect
    chosen = ((8, 9, 4), (7, 7, 3))
    rollouts = [Rollout((5, 6, 7), ids, np.zeros(3, np.float32), "", True) for ids in chosen]
    rows = sketches(UpdateContext(policy, config), rollouts, 10**9, 0)
    for row, rollout in zip(rows, rollouts, strict=True):
        logprob = plain_logprobs(policy, rollout).sum()
        gradients = torch.autograd.grad(logprob, [*trained.values()])
        expected = torch.cat([one.reshape(-1) for one in gradients])
        assert expected.norm() > 0
        torch.testing.assert_close(row, expected, rtol=1e-3, atol=1e-4)


def test_the_verb_writes_table_figure_and_origin(store, capsys):
    words = ("--prompts", "3", "--rollouts", "16", "--groups", "4", "--sketch", "2000")
    assert main(["probe", str(store.folder), *words]) == 0
    said = capsys.readouterr().out
    [path] = [line.split()[1] for line in said.splitlines() if line.startswith("figure: ")]
    assert str(store.folder) not in path and "step-000001" in path
    with open(path.replace(".png", ".json")) as file:
        about = json.load(file)
    assert (about["dimensions"], about["exact"], len(about["rows"])) == (2000, False, 24)
    assert "all runs have n = 4 and m = 2" in about["seconds"]  # one (n, m) identifies no cost


def test_a_run_without_checkpoints_is_refused(store, tmp_path, capsys):
    folder = tmp_path / "runs/study/tiny-chainsum/rule" / store.folder.name
    shutil.copytree(store.folder, folder, ignore=shutil.ignore_patterns("step-0*"))
    assert "has no checkpoint that can be read" in refused(capsys, "probe", folder)
