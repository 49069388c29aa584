"""`pods probe`: the constants of the law are those of a brute force, and of made-up gradients."""

from itertools import permutations

import numpy as np
import pytest

from pods.types import Group
from pods_lab.probe.law import constants


def rollouts(seed, problems=48, size=16, noise=3.0, rho=0.3, own=0.5):
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
    v, kept = rollouts(3, problems=9, size=8)[0], range(2, 9)
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
    tables = [found(*rollouts(seed, own=own)) for seed in range(40)]
    truth = {"NOISE": 3, "ratio": 0.5, "own": own, **({"rho": 0.3} if own == 0 else {})}
    for name, value in truth.items():
        values = np.array([table.value[name] for table in tables])
        inside = [table.low[name] <= value <= table.high[name] for table in tables]
        assert np.median(values) == pytest.approx(value, abs=4 * values.std() / 40**0.5)
        assert np.mean(inside) >= 0.85


def test_noise_that_meets_itself_is_seen():
    v, right = rollouts(0, noise=100.0)
    d = [v[x, right[x]].mean(0) - v[x, ~right[x]].mean(0) for x in range(len(v))]
    naive = 100 / np.mean([one @ one for one in d])  # of |d_x|² = 1
    row = found(v, right).loc["NOISE"]
    assert naive < row.low < 100 < row.high
    nothing = found(np.random.default_rng(0).normal(size=(*right.shape, 40)), right)
    assert nothing.high["NOISE"] == np.inf
