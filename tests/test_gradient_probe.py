"""`pods probe`: sketches are gradients, and moments and the law's constants those by hand."""

import json
import shutil
from functools import partial
from itertools import permutations

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
from pods_lab.probe.law import constants
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


def test_an_estimators_draws_do_not_depend_on_the_others():
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    pool = Group(rewards, rewards > 0, np.ones(5, dtype=np.int64))
    gradients = np.random.default_rng(0).normal(size=(10, 3))
    products = (gradients @ gradients.T).astype(np.float32)
    second = estimator("random", 4, 2, "leave_one_out", "none")
    found = []
    for rule in ("max_variance", "random"):  # which draws nothing, and which draws
        first = estimator(rule, 4, 2, "leave_one_out", "none")
        found.append(moments(products, [pool, pool], [first, second], 20, seed=0))
    assert np.array_equal(found[0].means[1], found[1].means[1])
    assert np.array_equal(found[0].squares[1], found[1].squares[1])
    assert not np.array_equal(found[1].means[0], found[1].means[1])  # of the same rule


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
    assert "has no checkpoint that can be used" in refused(capsys, "probe", folder)


def drawn_gradients(seed, problems=48, size=16, noise=3.0, rho=0.3, own=0.5):
    """Draw gradients of known d_x, |d_x|² = 1, and half the noise in right ones; return v, right.

    Rates are 0.2, 0.4 and 0.7, of mean q 0.2033; all d_x share a direction in proportion to kappa.
    """
    rng, width = np.random.default_rng(seed), 40
    p = rng.choice([0.2, 0.4, 0.7], problems)[:, None, None]
    shared = rho**0.5 * (1 - own + own * p[:, :, 0] * (1 - p[:, :, 0]) / 0.20333)
    alone = rng.normal(size=(problems, width - 1))
    alone *= (1 - shared**2) ** 0.5 / np.linalg.norm(alone, axis=1, keepdims=True)
    right = rng.random((problems, size)) < p[:, 0]
    scale = np.where(right, noise / 2, noise)[..., None] / width
    means = np.where(right[..., None], 1 - p, -p) * np.hstack([shared, alone])[:, None]
    return means + scale**0.5 * rng.normal(size=means.shape), right


def found(v, right, resamples=200):
    v = v.reshape(right.size, -1)
    groups = [Group(one.astype(float), one, np.ones_like(one, dtype=int)) for one in right]
    return constants((v @ v.T).astype(np.float32), groups, resamples, 0).set_index("constant")


def test_constants_are_those_of_a_brute_force_without_any_rollout_twice():
    v, kept = drawn_gradients(3, problems=9, size=8)[0], range(2, 9)
    right = np.arange(8) < np.array([0, 1, 2, 3, 6, 5, 4, 4, 2])[:, None]
    sets = [(v[x, right[x]], v[x, ~right[x]]) for x in range(9)]
    d = [a.mean(0) - b.mean(0) if len(a) else b[0] for a, b in sets]

    def square(x):  # no rollout meets itself
        a, b = sets[x]
        return np.mean([(r - w) @ (s - u)
                        for r, s in permutations(a, 2) for w, u in permutations(b, 2)])  # fmt: skip

    squares = np.mean([square(x) for x in kept])
    good, wrong = np.mean([[np.var(c, axis=0, ddof=1).sum() for c in sets[x]] for x in kept], 0)
    pairs = [d[x] @ d[y] for x, y in permutations(kept, 2)]
    gradients = [np.cov(right[x], v[x].T)[0, 1:] for x in range(9)]
    kappa = [np.mean([d[x] @ gradients[y] for y in range(9) if y != x]) for x in range(9)]

    def power(x, k):  # q to the k-th, from 2 k different rollouts
        return np.mean([all(right[x, t[::2]]) and not any(right[x, t[1::2]])
                        for t in map(list, permutations(range(8), 2 * k))])  # fmt: skip

    q = np.array([[power(x, k) for x in range(9)] for k in (1, 2, 3)])
    a, b = np.linalg.solve([q[:2].mean(1), q[1:].mean(1)], (q[:2] * kappa).mean(1))
    part = b * q[0].mean()
    expected = [wrong / squares, good / wrong, np.mean(pairs) / squares, part / (a + part)]
    value = found(v, right).value
    assert value[["NOISE", "ratio", "rho", "own"]].tolist() == pytest.approx(expected, rel=1e-4)
    assert value[["left out, few right", "left out, few wrong"]].tolist() == [2 / 9, 0]


def test_bins_of_p_by_hand():
    """Ten problems: five of rate 1/4 with d = (1, 0), five of 1/2 with (3, 0), without noise.

    A gradient is q d with the sample's q, 3/14 or 4/14: 3/14 and 12/14, and kappa leaves out x.
    """
    right = np.array([[1, 1, 0, 0, 0, 0, 0, 0]] * 5 + [[1, 1, 1, 1, 0, 0, 0, 0]] * 5, dtype=bool)
    table = found(right[..., None] * np.repeat([1.0, 3.0], 5)[:, None, None], right)
    few, half = (4 * 3 + 5 * 12), 3 * (5 * 3 + 4 * 12)
    assert table.value["kappa, p 0.2-0.3"] == pytest.approx(few / ((few + half) / 2))
    assert table.value["kappa, p 0.5-0.6"] == pytest.approx(half / ((few + half) / 2))
    assert table.value["square, p 0.5-0.6"] == pytest.approx(9 / 5)
    assert table.value["NOISE"] == pytest.approx(0, abs=1e-6) and table.problems["rho"] == 10


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_known_constants_are_found_and_covered(own):
    tables = [found(*drawn_gradients(seed, own=own)) for seed in range(40)]
    truth = {"NOISE": 3, "ratio": 0.5, "own": own, **({"rho": 0.3} if own == 0 else {})}
    for name, value in truth.items():
        values = np.array([table.value[name] for table in tables])
        inside = [table.low[name] <= value <= table.high[name] for table in tables]
        assert np.median(values) == pytest.approx(value, abs=4 * values.std() / 40**0.5)
        assert np.mean(inside) >= 0.85


def test_noise_that_meets_itself_is_seen():
    v, right = drawn_gradients(0, noise=100.0)
    d = [v[x, right[x]].mean(0) - v[x, ~right[x]].mean(0) for x in range(len(v))]
    naive = 100 / np.mean([one @ one for one in d])  # of |d_x|² = 1
    row = found(v, right).loc["NOISE"]
    assert naive < row.low < 100 < row.high
    nothing = found(np.random.default_rng(0).normal(size=(*right.shape, 40)), right)
    assert nothing.high["NOISE"] == np.inf
