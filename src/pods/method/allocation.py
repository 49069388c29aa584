"""How many more rollouts each prompt of a step gets, from a budget that all of them share.

After a first round of rollouts of each prompt, some groups have right and wrong ones enough, and
others nearly none of one kind. `knapsack` spends what is left of the step's budget where it is
expected to balance groups most.

Shapes: G = groups of a step, m = rollouts kept per group.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pods.method.adaptive import PRIOR, beta_binomial, nearest_to_half
from pods.system.imports import import_function
from pods.types import Group

LARGEST = 15  # further rounds of one prompt, so that one alone never takes a large step's budget
WORTHLESS = 1e-9  # expected gains that are no more than rounding

Allocate = Callable[[Sequence[Group], int, int], Sequence[int]]
"""`allocate(groups, m, rounds)` returns how many of so many further rounds each group gets, given
its rollouts of the first round."""


def knapsack(groups: Sequence[Group], m: int, rounds: int) -> list[int]:
    """Share further rounds so that the groups' expected signal is as large as it can be.

    The signal of a group is sqrt(f (1 - f)) of the share f of its kept rollouts that are right,
    where these are as near to half as they can be; see `adaptive.expected_progress`. A prompt's
    success rate has the Beta posterior of its first round. One more round never gains more than
    the one before: the root is concave, and the rounds of a prompt are exchangeable. So to take the
    largest of all gains, a round at a time, is the best allocation. A round that gains nothing is
    not sampled.

    The idea is that of Knapsack RL (arXiv:2509.25849), whose value of a prompt is another: the
    chance of a group with both kinds times p (1 - p)^2, by the success rate of earlier epochs.

    Args:
        groups: (G,) groups of one round each, of at least m rollouts.
        m: rollouts kept per group.
        rounds: further rounds for all groups together.

    >>> right = [[True, False] * 2, [False] * 4, [True] * 3 + [False]]  # 2, 0 and 3 of 4
    >>> groups = [Group(np.ones(4), np.array(r), np.ones(4, np.int64)) for r in right]
    >>> knapsack(groups, 4, 3)
    [0, 2, 1]
    """
    size, most = len(groups[0].rewards), min(rounds, LARGEST)
    right = [int(group.correct.sum()) for group in groups]
    gains = {count: round_gains(count, size, m, most) for count in {*right}}
    flat = np.concatenate([gains[count] for count in right])
    best = np.argsort(-flat, kind="stable")[:rounds]
    taken = best[flat[best] > WORTHLESS] // most
    return [int(count) for count in np.bincount(taken, minlength=len(groups))]


def round_gains(right: int, size: int, m: int, rounds: int) -> NDArray[np.float64]:
    """Return what each further round of one prompt is expected to add to its signal, (rounds,).

    Args:
        right: right rollouts of the first round.
        size: rollouts per round, m or more.
        m: rollouts kept.
        rounds: further rounds.
    """
    posterior = np.array([[PRIOR[0] + right, PRIOR[1] + size - right]])
    signals = []
    for further in range(0, size * rounds + 1, size):
        share = nearest_to_half(size + further, m, right + np.arange(further + 1))
        signals.append(beta_binomial(further, posterior)[0] @ np.sqrt(share * (1 - share)))
    return np.diff(signals)


def allocate(name: str, groups: Sequence[Group], m: int, rounds: int) -> list[int]:
    """Apply `knapsack`, or the function `module:function`, and check its result.

    Raises:
        ValueError: it did not return a number of rounds for each group, at most `rounds` in all.
    """
    function: Allocate = import_function(name) if ":" in name else knapsack
    returned = function(groups, m, rounds)
    counts = np.asarray(returned)
    whole = counts.shape == (len(groups),) and np.issubdtype(counts.dtype, np.integer)
    if not (whole and counts.min() >= 0 and counts.sum() <= rounds):
        raise ValueError(
            f"nm.allocation={name}: must return whole numbers >= 0 for {len(groups)} groups, at "
            f"most {rounds} in all, got {returned}"
        )
    return [int(count) for count in counts]
