"""Rollouts shared between the prompts of a step: against brute force, by hand, and in a run."""

import itertools
import json

import numpy as np
import pytest
from compose import ROOT, composed
from running import run_here
from scipy import stats
from test_rules_of_ones_own import SHORT, Scripted
from test_train import loop

from pods.config.parse import ConfigError
from pods.method.adaptive import PRIOR
from pods.method.allocation import allocate, knapsack, round_gains
from pods.types import Group


def first_round(*right: int, size: int) -> list[Group]:
    """Make groups with so many right rollouts of `size`."""
    corrects = [np.arange(size) < count for count in right]
    return [Group(c.astype(float), c, np.ones(size, np.int64)) for c in corrects]


def expected_signal(right: int, size: int, m: int, further: int) -> float:
    """Return the expected signal by scipy, and by the best of all numbers of right ones to keep."""
    chances = stats.betabinom(further, PRIOR[0] + right, PRIOR[1] + size - right).pmf
    total = 0.0
    for found in range(further + 1):
        rights, wrongs = right + found, size + further - right - found
        shares = [k / m for k in range(m + 1) if k <= rights and m - k <= wrongs]
        total += chances(found) * max(np.sqrt(f * (1 - f)) for f in shares)
    return total


def test_gains_are_those_of_scipy_and_of_the_best_choice():
    for right, size, m in [(0, 4, 4), (1, 4, 2), (4, 4, 3), (2, 6, 6), (15, 16, 16)]:
        signals = [expected_signal(right, size, m, size * k) for k in range(5)]
        assert round_gains(right, size, m, 4) == pytest.approx(np.diff(signals), abs=1e-12)


@pytest.mark.parametrize(("size", "m"), [(4, 4), (4, 2), (6, 5), (8, 8)])
def test_the_knapsack_is_the_best_of_all_allocations(size, m):
    rng = np.random.default_rng(size)
    for rounds in (1, 3, 5):
        right = rng.integers(0, size + 1, 4)
        signal = [[expected_signal(r, size, m, size * k) for k in range(rounds + 1)] for r in right]
        every = itertools.product(range(rounds + 1), repeat=len(right))
        best = max(
            sum(row[k] for row, k in zip(signal, counts, strict=True))
            for counts in every
            if sum(counts) <= rounds
        )
        counts = knapsack(first_round(*right, size=size), m, rounds)
        reached = sum(row[k] for row, k in zip(signal, counts, strict=True))
        assert sum(counts) <= rounds
        assert reached == pytest.approx(best, abs=1e-12)


def test_a_round_that_gains_nothing_is_not_sampled_and_none_takes_all():
    assert knapsack(first_round(8, 8, size=16), 16, 2) == [0, 0]  # both have 8 of each kind
    [most] = knapsack(first_round(0, size=4), 4, 100)
    assert most == 15


def unequal(groups, m, rounds):
    """Give everything to the group with the fewest right rollouts: an allocation of one's own."""
    fewest = min(range(len(groups)), key=lambda i: groups[i].correct.sum())
    return [rounds * (i == fewest) for i in range(len(groups))]


def too_much(groups, m, rounds):
    """Return more rounds than there are."""
    return [rounds] * len(groups)


def test_an_allocation_of_ones_own_is_checked():
    groups = first_round(1, 0, size=2)
    assert allocate("test_allocation:unequal", groups, 2, 3) == [0, 3]
    with pytest.raises(
        ValueError, match=r"too_much: must return .* at most 3 in all, got \[3, 3\]"
    ):
        allocate("test_allocation:too_much", groups, 2, 3)


def test_a_step_by_hand():
    """n = 4 in rounds of 2: 2 prompts share 2 further rounds, sampled at once with other seeds."""
    made, _ = loop("nm.n=4", "nm.m=2", "nm.round=2", "nm.allocation=test_allocation:unequal",
                   "sampler=random", "prompts_per_step=2")  # fmt: skip
    object.__setattr__(made, "engine", Scripted())  # right answers to prompt 0, in a second round
    rollouts, grades, _ = made.sample_rounds(1, 0, [0, 1])
    assert [len(of_prompt) for of_prompt in rollouts] == [6, 2]  # a tie: the first has fewest
    assert [sum(g.correct for g in of_prompt) for of_prompt in grades] == [2, 0]  # 1 per round
    assert [len(call[0]) for call in made.engine.calls] == [2, 2]
    seeds = [seed for call in made.engine.calls for seed in call[3]]
    assert seeds == [made.rollout_seed(1, *at) for at in ((0, 0), (1, 0), (0, 1), (0, 2))]


def test_a_run_is_charged_for_what_it_sampled_and_keeps_m_of_each_prompt(tmp_path):
    store = run_here("arm=knapsack", *SHORT, f"runs_dir={tmp_path}")
    lines = [*map(json.loads, store.metrics_path.read_text().splitlines())]
    for line in lines:
        assert sum(line["rollouts_per_group"]) == line["generated_rollouts"]
        assert min(line["rollouts_per_group"]) >= 4
        assert [len(kept) for kept in line["kept"]] == [4, 4, 4]
    assert any(len({*line["rollouts_per_group"]}) > 1 for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nm.round=null"], "nm.round=null: must be at least m=16 and divide n=64 where"),
        (["nm.round=8"], "nm.round=8: must be at least m=16 and divide n=64 where"),
        (["nm.round=24"], "nm.round=24: must be at least m=16 and divide n=64 where"),
        (["prompts_per_step=1"], "prompts_per_step=1: must be at least 2 where nm.allocation=knap"),
        (["nm.allocation=fair"], "nm.allocation=fair: must be one of equal, knapsack, or module:"),
        (["nm.allocation=absent:f"], "nm.allocation=absent:f: cannot import it"),
        (["arm=adaptive", "nm.round=32", "nm.allocation=knapsack"], "nm.round=32: must be"),
    ],
)  # fmt: skip
def test_mistakes(words, message):
    with pytest.raises(ConfigError) as error:
        composed("arm=knapsack", *words)
    assert message in str(error.value)


def test_the_allocation_of_the_documentation():
    text, names = (ROOT / "src/pods/tasks/README.md").read_text(), {}
    exec(text.split("# my_allocations.py\n")[1].split("```")[0], names)
    assert names["worst_first"](first_round(3, 0, 1, size=4), 4, 2) == [0, 2, 0]
