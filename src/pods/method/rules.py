"""Down-sampling rules: which m of a prompt's n rollouts the policy is trained on.

A rule sees one `Group`; all but `balanced` also take the rewards alone, as a plain array:
`max_variance(rewards, 16)`. A rule that is marked with `across_groups` sees all groups of a step.

Shapes: n = rollouts generated for one prompt, m = rollouts kept, G = groups of a step. Every rule
here returns m distinct indices in ascending order, so that with m = n each of them is GRPO.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pods.types import Group

Indices = NDArray[np.intp]  # (m,)
Rewards = NDArray[np.float64]  # (n,)

TIE = 1e-12  # values that differ by less, relative to the whole group, are tied


def rounding(rewards: Rewards) -> float:
    """Return by how much two rewards of a group may differ and still be the same number.

    A reward is a sum of parts of about 1, such as 0.1 + 0.2, so the group is taken to have a 1.
    """
    return TIE * max(1.0, float(np.abs(rewards).max()))


def all_equal(rewards: Rewards) -> bool:
    """Return whether all rewards are equal, apart from rounding.

    >>> all_equal(np.array([0.1 + 0.2, 0.3])), all_equal(np.array([0.3, 0.300001]))
    (True, False)
    """
    return bool(np.ptp(rewards) <= rounding(rewards))


def max_variance(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m rollouts whose rewards have the largest variance (PODS, Def. 3.1, Algorithm 2).

    Xu, Savani, Fang & Kolter, "Not All Rollouts are Useful", arXiv:2504.13818.

    Some best subset is the m - k lowest and the k highest rewards for some k in 0..m (Lemma 3.1),
    so m + 1 splits are compared instead of C(n, m) subsets. Prefix sums of r and r^2 give each
    split's variance in O(1): O(n log n) in all, for the sort. Among equal rewards the earlier
    rollout ranks lower; among tied splits the one with the fewest high rewards wins. `rng` is
    unused: every rule has the same signature.

    `ValueError`: m is not in 1..n, or a reward is NaN or infinite.

    >>> max_variance(np.array([0.0, 1.0, 0.4, 1.1, 0.1]), 3)  # two low rewards vary more
    array([0, 3, 4])
    """
    rewards = _checked(group, m)
    order = np.argsort(rewards, kind="stable")
    sums = np.zeros((2, len(order) + 1))  # of the first 0, 1, ..., n rewards, and of their squares
    sums[0, 1:] = _centred(rewards[order])
    sums[1] = sums[0] ** 2
    sums = sums.cumsum(axis=1)
    # a split leaves out what lies between its low and its high edge
    total, squares = sums[:, : m + 1] + sums[:, -1:] - sums[:, len(order) - m :]
    spread = squares - total**2 / m  # m times the variance
    lows = int(np.flatnonzero(spread >= spread.max() - TIE * sums[1, -1])[-1])
    return np.sort(np.concatenate([order[:lows], order[len(order) - m + lows :]]))


def max_variance_aliased(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep what the PODS authors' 8-GPU code keeps, which is not the largest variance.

    There the best subset so far is a view of the sorted order (open-r1/src/open_r1/grpo_trainer.py,
    1108-1116 at 187f43b): storing a better one overwrites the m highest, and later splits take
    their highs from what is left. So of binary rewards with enough of both it keeps one correct
    rollout and m - 1 wrong ones. In float32, as there: rounding decides between tied splits.

    `ValueError`: n/2 < m < n, for which that code keeps some rollouts twice; or as `max_variance`.

    >>> rewards = np.array([1.0, 0.0] * 4)
    >>> rewards[max_variance_aliased(rewards, 4)]
    array([1., 0., 0., 0.])
    """
    rewards = _checked(group, m)
    n = len(rewards)
    if n / 2 < m < n:
        raise ValueError(f"m={m}: max_variance_aliased needs at most n/2={n / 2:g}, or n={n}")
    single = rewards.astype(np.float32)
    order = np.argsort(-single, kind="stable")
    best = order[:m]  # a view: writing to it overwrites `order`
    if m in (1, n):  # one rollout has no variance to compare, and of all there is no choice
        return np.sort(best)
    best_variance = single[best].var(ddof=1)
    for k in range(m):
        split = np.concatenate([order[:k], order[k - m :]])
        variance = single[split].var(ddof=1)
        if variance > best_variance:
            best[:] = split
            best_variance = variance

    return np.sort(best)


def max_reward(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m highest rewards, the earlier rollout first among equals (PODS rule ablation).

    >>> max_reward(np.array([0.0, 1.0, 1.0, 0.5]), 1)
    array([1])
    """
    return np.sort(np.argsort(-_checked(group, m), kind="stable")[:m])


def random(group: Group | Rewards, m: int, rng: Generator) -> Indices:
    """Keep a uniformly drawn m-subset: the update of GRPO with m, at the cost of n rollouts."""
    return np.sort(rng.choice(len(_checked(group, m)), m, replace=False))


def keep_all(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep everything (GRPO); m must be n."""
    n = len(_checked(group, m))
    if m != n:
        raise ValueError(f"rule all keeps every rollout: m={m} must be n={n}")
    return np.arange(m)


def percentile(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the rollouts at m evenly spaced quantiles of the reward: (i + 1/2)/m, i < m.

    This rule is ours, a control that spreads over the rewards without seeking the extremes.

    >>> percentile(np.arange(8.0), 2)
    array([2, 6])
    """
    order = np.argsort(_checked(group, m), kind="stable")
    return np.sort(order[evenly_spaced(m, len(order))])


def evenly_spaced(count: int, among: int) -> list[int]:
    """Return the indices of the middles of `count` equal parts of `among` things.

    >>> evenly_spaced(2, 8)
    [2, 6]
    """
    return [(2 * i + 1) * among // (2 * count) for i in range(count)]


def max_abs_advantage(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m largest |r - mean|, the largest |advantage| over the full group: CPPO's selection.

    Lin et al., arXiv:2503.22342 (src/open_r1/grpo_trainer_gsm.py:870-930), with
    `advantage.baseline=full`. There the smallest of all prompts of a process are dropped together
    and other prompts take their place; here each group keeps m, of equals the earlier ones.

    >>> max_abs_advantage(np.array([0.0, 0.0, 1.0, 0.0]), 2)
    array([0, 2])
    """
    distance = _without_rounding(np.abs(_centred(_checked(group, m))))
    return np.sort(np.argsort(-distance, kind="stable")[:m])


def balanced(group: Group, m: int, rng: Generator) -> Indices:
    """Keep m/2 right and m/2 wrong rollouts, drawn uniformly; the other side fills what is missing.

    The selection of Reinforce-Ada's balanced variant (Xiong et al., arXiv:2510.04996), which goes
    with `advantage.baseline=full advantage.scale=none`: r - mean over all samples. For odd m one
    more is wrong (RLHFlow/Reinforce-Ada@05be605, verl/trainer/ppo/ray_trainer.py:1069-1089,
    target_pos = m // 2). The authors keep those of each kind that were generated first, which is
    the same in distribution if all n are generated at once, and count a sample as right if its
    reward is above 0.7, here if its answer is.

    >>> rewards = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    >>> group = Group(rewards, rewards >= 1, np.ones(5, dtype=np.int64))
    >>> 2 in balanced(group, 4, np.random.default_rng(0))
    True
    """
    if not isinstance(group, Group):
        raise ValueError("balanced needs a Group, which knows the right rollouts, not an array")
    _checked(group, m)
    order = rng.permutation(len(group.rewarded))
    right = order[group.rewarded[order]]
    wrong = order[~group.rewarded[order]]
    rights = int(np.clip(m // 2, m - len(wrong), len(right)))
    return np.sort(np.concatenate([right[:rights], wrong[: m - rights]]))


def _checked(group: Group | Rewards, m: int) -> Rewards:
    rewards = group.rewards if isinstance(group, Group) else np.asarray(group, dtype=np.float64)
    if rewards.ndim != 1:
        raise ValueError(f"a rule takes the rewards of one group, (n,), not {rewards.shape}")
    if not 1 <= m <= len(rewards):
        raise ValueError(f"cannot keep m={m} of n={len(rewards)} rollouts")
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards}")
    return _without_rounding(rewards)


def _without_rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace values by the least of those that differ from it by rounding, as 0.1 + 0.2 and 0.3.

    So the sums that make a reward do not decide between equal rollouts. A value differs by rounding
    from the next lower one if their gap is at most `TIE` of the largest.
    """
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    gaps = np.diff(ascending / (np.abs(values).max() or 1.0))
    is_new = np.concatenate([[True], gaps > TIE])

    equal = np.empty_like(values)
    equal[order] = ascending[is_new][np.cumsum(is_new) - 1]
    return equal


def _centred(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale to mean 0 and largest size 1, so that squares neither overflow nor vanish."""
    scaled = rewards / (max(rewards.max(), -rewards.min()) or 1.0)
    scaled -= scaled.mean()
    return np.asarray(scaled / (max(scaled.max(), -scaled.min()) or 1.0))


Rule = Callable[[Group, int, Generator], Indices]
RuleAcross = Callable[[Sequence[Group], int, Generator], Sequence[Indices]]
"""`rule(groups, m, rng)` returns the indices to keep of each group: at most G m in all, and of one
group any number, also none."""

RULES: Mapping[str, Rule] = {
    "max_variance": max_variance,
    "max_variance_aliased": max_variance_aliased,
    "max_reward": max_reward,
    "percentile": percentile,
    "max_abs_advantage": max_abs_advantage,
    "balanced": balanced,
    "random": random,
    "all": keep_all,
}


def across_groups(rule: RuleAcross) -> RuleAcross:
    """Mark a rule that chooses from all groups of a step that are trained on, at once.

    >>> @across_groups
    ... def right(groups, m, rng):  # all right rollouts of the step, at most G m of them
    ...     left = iter(range(m * len(groups)))
    ...     return [[i for i, _ in zip(np.flatnonzero(g.rewarded), left)] for g in groups]
    """
    rule.is_across_groups = True  # type: ignore[attr-defined]
    return rule


def is_across_groups(rule: Rule | RuleAcross) -> bool:
    """Return whether a rule is marked with `across_groups`."""
    return getattr(rule, "is_across_groups", False)
