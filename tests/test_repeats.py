"""pass@k against all subsets, and majority votes by hand."""

from itertools import combinations

import numpy as np
import pytest

from pods.analysis.repeats import majority, pass_at_k, sizes


@pytest.mark.parametrize("repeats", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(repeats):
    correct = np.random.default_rng(repeats).uniform(size=(repeats, 7)) < 0.3
    for k in range(1, repeats + 1):
        subsets = [correct[list(chosen)].any(0) for chosen in combinations(range(repeats), k)]
        found = pass_at_k(correct.sum(0), repeats, k)
        assert found == pytest.approx(np.mean(subsets), abs=1e-12)
    assert pass_at_k(correct.sum(0), repeats, 1) == pytest.approx(correct.mean())


def test_sizes_are_powers_of_two_and_all_repeats():
    assert [sizes(n) for n in (1, 2, 3, 4, 5, 16)] == [
        [], [2], [2, 3], [2, 4], [2, 4, 5], [2, 4, 8, 16],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("votes", "share"),
    [
        (["+1/2", "+0.5", "3", "4", "5"], 1.0),  # right answers are one candidate
        (["+1", "3", "3"], 0.0),
        (["+1", "+1", "3", "3", "4"], 0.5),  # a tie of two
        (["+1", "3", "4"], 1 / 3),  # of three
        (["+1", None, None, None], 1.0),  # no answer, no vote
        ([None, None], 0.0),
        (["3", "3", None], 0.0),
    ],
)
def test_a_majority_vote_by_hand(votes, share):
    correct = np.array([[vote is not None and vote.startswith("+")] for vote in votes])
    given = [[vote] for vote in votes]
    assert majority(correct, given) == pytest.approx(share)
    both = np.hstack([correct, np.ones_like(correct)])  # and a question that all get right
    assert majority(both, [[vote, "7"] for vote in votes]) == pytest.approx((share + 1) / 2)
