"""Each rule against brute force or a law; Theorem 2's closed form for binary rewards."""

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pods
import pods.rules as public_rules
from pods.method import rules
from pods.method.keep import keep
from pods.method.rules import RULES, balanced, max_abs_advantage, max_variance, max_variance_aliased
from pods.types import Group


def test_a_script_imports_the_rules_without_their_helpers():
    """In another process, since a rule that was imported before is an attribute of `pods`."""
    code = "from pods.rules import max_variance, RULES; import pods.rules as rules, pods, sys; "
    code += "print(*max_variance([0.0, 1.0, 0.4], 2), pods.rules is rules, 'torch' in sys.modules)"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "0 1 True False\n"
    functions = {rule.__name__ for rule in RULES.values()}
    public = {name for name in dir(public_rules) if not name.startswith("_")}
    assert public == {*functions, "RULES", "across_groups"} == set(public_rules.__all__)
    assert set(pods.PUBLIC) == set(dir(pods))


RNG = np.random.default_rng(0)


def group(rewards: list[float]) -> Group:
    array = np.array(rewards, dtype=float)
    return Group(array, array >= 1, np.ones(len(array), dtype=np.int64))


# few distinct values, so that ties are the rule; negative and equal ones among them
FEW = st.sampled_from([-2.5, -1.0, 0.0, 0.1, 0.2, 1.0, 1.1, 3.0])
TIED = st.lists(FEW, min_size=1, max_size=10)
ANY = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=10)


@given(st.one_of(TIED, ANY), st.data())
def test_max_variance_is_the_best_of_all_subsets(rewards, data):
    m = data.draw(st.integers(1, len(rewards)))
    kept = max_variance(group(rewards), m, RNG)
    best = max(map(np.var, combinations(rewards, m)))
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


@pytest.mark.parametrize(
    ("correct", "kept"), [(16, 16), (20, 13), (28, 5), (31, 2), (32, 1), (96, 1), (110, 14)]
)
def test_the_aliased_rule_keeps_what_the_authors_code_keeps(correct, kept):
    # read off a run of grpo_trainer.py:1108-1116 at 187f43b, n = 128, m = 32
    rewards = np.random.default_rng(0).permutation([1.0] * correct + [0.0] * (128 - correct))
    chosen = max_variance_aliased(group(list(rewards)), 32, RNG)
    assert rewards[chosen].sum() == kept
    # the paper's example, 64 of 128 correct: 16 correct and 16 wrong; that code keeps 1 and 31
    half = [1.0, 0.0] * 64
    for rule, right in ((max_variance, 16), (max_variance_aliased, 1)):
        assert np.array(half)[rule(group(half), 32, RNG)].sum() == right


@given(TIED, st.data())
def test_max_abs_advantage_keeps_the_farthest_from_the_mean(rewards, data):
    m = data.draw(st.integers(1, len(rewards)))
    distance = np.abs(np.array(rewards) - np.mean(rewards))
    kept = max_abs_advantage(group(rewards), m, RNG)
    left = np.setdiff1d(np.arange(len(rewards)), kept)
    assert len(left) == 0 or distance[kept].min() >= distance[left].max() - 1e-9


def test_max_abs_advantage_percentile_and_max_reward_by_hand():
    # mean 0.25: |r - mean| is 0.25, 0.25, 0.75, 0.25; the earlier of equals
    assert max_abs_advantage(group([0.0, 0.0, 1.0, 0.0]), 3, RNG).tolist() == [0, 1, 2]
    # mean 0.5: all are as far, whatever rounding says
    assert max_abs_advantage(group([0.1, 0.9] * 4), 2, RNG).tolist() == [0, 1]
    # eight rewards in order, four kept: the quantiles 1/8, 3/8, 5/8, 7/8 are places 1, 3, 5, 7
    shuffled = [5.0, 0.0, 7.0, 3.0, 1.0, 6.0, 2.0, 4.0]
    kept = rules.percentile(group(shuffled), 4, RNG)
    assert sorted(shuffled[i] for i in kept) == [1.0, 3.0, 5.0, 7.0]
    # ten and three: 1/6, 3/6, 5/6 of ten are places 1.67, 5, 8.33
    assert rules.percentile(group(list(map(float, range(10)))), 3, RNG).tolist() == [1, 5, 8]
    assert rules.max_reward(group([0.0, 1.0, 0.5, 1.0, 1.0]), 2, RNG).tolist() == [1, 3]


@given(st.integers(0, 12), st.integers(0, 12), st.data())
def test_balanced_keeps_as_many_right_as_wrong_where_it_can(right, wrong, data):
    n = max(right + wrong, 1)
    m = data.draw(st.integers(1, n))
    rewards = np.array([1.0] * right + [0.0] * (n - right))
    kept = int(rewards[balanced(group(list(rewards)), m, np.random.default_rng(0))].sum())
    possible = range(max(0, m - (n - right)), min(right, m) + 1)
    assert kept == min(possible, key=lambda k: (abs(k - (m - k)), k))  # the odd one is wrong


def test_every_right_one_is_drawn_alike_by_balanced():
    rng, counts = np.random.default_rng(0), np.zeros(6)
    for _ in range(3000):
        counts[balanced(group([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]), 2, rng)] += 1
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(1000)


@given(st.sampled_from(sorted(RULES)), TIED, st.data())
def test_rules_return_m_distinct_ascending_indices_and_repeat_themselves(name, rewards, data):
    most = max(1, len(rewards) // 2)
    m = len(rewards) if name == "all" else data.draw(st.integers(1, most))
    first, second = (RULES[name](group(rewards), m, np.random.default_rng(7)) for _ in range(2))
    assert first.tolist() == second.tolist() == sorted(set(first.tolist()))
    assert len(first) == m
    kept = RULES[name](group(rewards), len(rewards), np.random.default_rng(1))
    assert kept.tolist() == list(range(len(rewards)))  # all, as GRPO


def test_max_variance_settles_ties_by_order():
    assert max_variance([0.0, 1.0, 0.4, 1.1, 0.1], 3).tolist() == [0, 3, 4]  # a plain list
    # one high is as good as two: the fewer highs win; of equals the lowest ranks come first
    assert max_variance(group([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]), 3, RNG).tolist() == [1, 3, 4]
    assert max_variance(group([0.5] * 5), 2, RNG).tolist() == [0, 1]
    many = [1.0, 0.0] * 20  # large enough for a sort that is not stable to show
    assert max_variance(group(many), 4, RNG).tolist() == [1, 3, 36, 38]
    for scale in (1e-200, 1e200):  # the ends of floating point
        rewards = [0.0, 1.0 * scale, 0.4 * scale, 1.1 * scale, 0.1 * scale]
        assert max_variance(group(rewards), 3, RNG).tolist() == [0, 3, 4]


@pytest.mark.parametrize("name", sorted(set(RULES) - {"all"}))
@pytest.mark.parametrize("sign", [1, -1])
def test_rewards_that_differ_by_rounding_are_ties(name, sign):
    """0.1 + 0.2 is more than 0.3, as 0.1 + 0.2 + 0.8 is more than 1.1."""
    summed = [0.3, 0.1 + 0.2, 1.1, 0.1 + 0.2 + 0.8, 0.3, 0.1 + 0.2, 0.0, 1.1]
    written = [0.3, 0.3, 1.1, 1.1, 0.3, 0.3, 0.0, 1.1]

    def kept(rewards, m):
        signed = group([sign * reward for reward in rewards])
        return RULES[name](signed, m, np.random.default_rng(3)).tolist()

    for start, end in combinations(range(9), 2):
        for m in range(1, (end - start) // 2 + 1):
            assert kept(summed[start:end], m) == kept(written[start:end], m)


def test_random_draws_every_subset_alike():
    counts: dict[tuple[int, ...], int] = {}
    rng = np.random.default_rng(0)
    for _ in range(6000):
        kept = tuple(rules.random(group([0, 1, 2, 3]), 2, rng).tolist())
        counts[kept] = counts.get(kept, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 4 * np.sqrt(1000) for count in counts.values())


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_refuse_what_they_cannot_do(name):
    with pytest.raises(ValueError, match="m=4"):
        RULES[name](group([1.0, 0.0, 1.0]), 4, RNG)
    with pytest.raises(ValueError, match="finite"):
        RULES[name](group([1.0, float("nan")]), 2, RNG)
    with pytest.raises(ValueError, match="read-only"):  # a rule cannot change the rewards
        group([1.0, 0.0]).rewards.sort()
    if name == "balanced":
        with pytest.raises(ValueError, match="needs a Group, which knows the right rollouts, not"):
            balanced(np.array([1.0, 0.0]), 1, RNG)
    # where the authors' code would keep rollouts twice
    with pytest.raises(ValueError, match=r"m=3: max_variance_aliased needs at most n/2=2, or n=4"):
        max_variance_aliased(group([0.0, 1.0, 0.0, 1.0]), 3, RNG)


@pytest.mark.parametrize(
    ("returned", "why"),
    [([0], ", not 1"), ([0, 0], ": 0 is repeated"), ([0, 3], ": 3 is out of range"),
     ([-1, 0], ": -1 is out of range"), ([0.0, 1.0], r", not \[0.0"), ([[0, 1]], r", not \[\[0"),
     ([True, False], r", not \[True"), (None, ", not None")])  # fmt: skip
def test_what_a_rule_returns_is_checked(returned, why):
    message = f"rule <lambda>: must return 2 distinct indices of 0 to 2{why}.*rules.py:"
    with pytest.raises(ValueError, match=message):
        keep(lambda group, m, rng: returned, [group([1.0, 0.0, 1.0])], 2, RNG)
    (kept,) = keep(lambda group, m, rng: [2, 0], [group([1.0, 0.0, 1.0])], 2, RNG)
    assert kept.tolist() == [0, 2]


@pytest.mark.parametrize("rewards", [[[1.0, 2.0], [3.0, 4.0]], 1.0, [[1.0, 2.0]]])
def test_a_rule_takes_one_row_of_rewards(rewards):
    for name, rule in RULES.items():
        if name != "balanced":
            with pytest.raises(ValueError, match=r"the rewards of one group, \(n,\), not \("):
                rule(np.array(rewards), 1, np.random.default_rng(0))
