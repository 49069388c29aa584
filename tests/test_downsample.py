"""Each rule against brute force or a law; Theorem 2's closed form for binary rewards."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods.method.downsample import RULES, find_rule, keep, max_reward, max_variance, random
from pods.records import Group

RNG = np.random.default_rng(0)


def group(rewards: list[float]) -> Group:
    array = np.array(rewards, dtype=float)
    return Group(array, array >= 1, np.ones(len(array), dtype=np.int64))


# few distinct values, so that ties are the rule; negative and equal ones among them
TIED = st.lists(
    st.sampled_from([-2.5, -1.0, 0.0, 0.1, 0.2, 1.0, 1.1, 3.0]), min_size=1, max_size=10
)
ANY = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=10)


@given(st.one_of(TIED, ANY), st.data())
def test_max_variance_is_the_best_of_all_subsets(rewards, data):
    m = data.draw(st.integers(1, len(rewards)))
    kept = max_variance(group(rewards), m, RNG)
    best = max(
        np.var([rewards[i] for i in subset]) for subset in combinations(range(len(rewards)), m)
    )
    assert np.var(np.array(rewards)[kept]) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(st.integers(1, 40), st.data())
def test_max_variance_of_binary_rewards_follows_theorem_2(n, data):
    c, m = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    rewards = data.draw(st.permutations([1.0] * c + [0.0] * (n - c)))
    correct = int(np.array(rewards)[max_variance(group(list(rewards)), m, RNG)].sum())
    if m % 2 == 0:
        assert correct == np.clip(m // 2, m - (n - c), min(c, m))
    attained = correct * (m - correct)
    assert attained == max(k * (m - k) for k in range(max(0, m - (n - c)), min(c, m) + 1))


def test_a_worked_example_with_the_papers_numbers():
    # 64 of 128 correct, m = 32: 16 correct and 16 wrong (the authors' 8-GPU code keeps 1 and 31)
    rewards = [1.0, 0.0] * 64
    kept = max_variance(group(rewards), 32, RNG)
    assert np.array(rewards)[kept].sum() == 16


@given(st.sampled_from(sorted(RULES)), TIED)
def test_with_m_equal_n_every_rule_is_grpo(name, rewards):
    kept = RULES[name](group(rewards), len(rewards), np.random.default_rng(1))
    assert kept.tolist() == list(range(len(rewards)))


@given(st.sampled_from(["max_variance", "max_reward", "random"]), TIED, st.data())
def test_rules_return_m_distinct_ascending_indices_and_repeat_themselves(name, rewards, data):
    m = data.draw(st.integers(1, len(rewards)))
    first, second = (RULES[name](group(rewards), m, np.random.default_rng(7)) for _ in range(2))
    assert first.tolist() == second.tolist() == sorted(set(first.tolist()))
    assert len(first) == m


@given(TIED, st.data())
def test_max_variance_ignores_shift_and_scale(rewards, data):
    m = data.draw(st.integers(1, len(rewards)))
    moved = [8.0 * reward + 1024.0 for reward in rewards]
    assert (
        max_variance(group(rewards), m, RNG).tolist() == max_variance(group(moved), m, RNG).tolist()
    )


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_max_variance_at_the_ends_of_floating_point(scale):
    rewards = [0.0, 1.0 * scale, 0.4 * scale, 1.1 * scale, 0.1 * scale]
    assert max_variance(group(rewards), 3, RNG).tolist() == [0, 3, 4]


def test_max_variance_settles_ties_by_order():
    # one high is as good as two: the fewer highs win; of equals the lowest ranks come first
    assert max_variance(group([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]), 3, RNG).tolist() == [1, 3, 4]
    assert max_variance(group([0.5] * 5), 2, RNG).tolist() == [0, 1]
    many = [1.0, 0.0] * 20  # large enough for a sort that is not stable to show
    assert max_variance(group(many), 4, RNG).tolist() == [1, 3, 36, 38]


def test_max_reward_takes_the_earlier_of_equals():
    assert max_reward(group([0.0, 1.0, 0.5, 1.0, 1.0]), 2, RNG).tolist() == [1, 3]


def test_random_draws_every_subset_alike():
    counts: dict[tuple[int, ...], int] = {}
    rng = np.random.default_rng(0)
    for _ in range(6000):
        kept = tuple(random(group([0, 1, 2, 3]), 2, rng).tolist())
        counts[kept] = counts.get(kept, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 4 * np.sqrt(1000) for count in counts.values())


@pytest.mark.parametrize("name", ["max_variance", "max_reward", "random", "all"])
def test_rules_refuse_what_they_cannot_do(name):
    with pytest.raises(ValueError, match="m=4"):
        RULES[name](group([1.0, 0.0, 1.0]), 4, RNG)
    with pytest.raises(ValueError, match="finite"):
        RULES[name](group([1.0, float("nan")]), 2, RNG)


def test_a_rule_cannot_change_the_rewards():
    with pytest.raises(ValueError, match="read-only"):
        group([1.0, 0.0]).rewards.sort()


def test_a_rule_of_ones_own_is_found_by_module_and_name():
    assert find_rule("pods.method.downsample:max_reward") is max_reward
    for name in ("nonsense", "no_such_module:rule", "os:no_such_function"):
        with pytest.raises(ValueError, match=r"must be one of|cannot import"):
            find_rule(name)


@pytest.mark.parametrize(
    "returned", [[0], [0, 0], [0, 3], [-1, 0], [0.0, 1.0], [[0, 1]], [True, False]]
)
def test_what_a_rule_returns_is_checked(returned):
    with pytest.raises(ValueError, match="rule <lambda> must return 2 distinct indices"):
        keep(lambda group, m, rng: returned, group([1.0, 0.0, 1.0]), 2, RNG)
    assert keep(lambda group, m, rng: [2, 0], group([1.0, 0.0, 1.0]), 2, RNG).tolist() == [0, 2]


def test_max_variance_of_a_large_group():
    rewards = np.random.default_rng(0).normal(size=65_536)
    kept = max_variance(group(rewards.tolist()), 32_768, RNG)
    order = np.argsort(rewards)
    k = np.isin(kept, order[-32_768:]).sum()
    # a symmetric pool: about half of the kept are the highest
    assert abs(k - 16_384) < 400
