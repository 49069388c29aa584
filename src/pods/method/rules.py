"""Down-sampling rules: which m of a prompt's n rollouts the policy is trained on.

A rule sees one group: rewards, correctness, lengths, and the rollouts with their text, tokens and
log-probs. Rules that look at rewards alone also take them as a plain array: `max_variance(r, 16)`.
A rule that is marked with `across_groups` sees all groups of a step at once.

Shapes: n = rollouts generated for one prompt, m = rollouts kept, G = groups of a step. Every rule
here returns m distinct indices in ascending order, so that with m = n each of them is GRPO.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pods.system.imports import import_function
from pods.types import Group

Indices = NDArray[np.intp]  # (m,)
Rewards = NDArray[np.float64]  # (n,)

TIE = 1e-12  # values that differ by less, relative to the whole group, are tied


def max_variance(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m rollouts whose rewards have the largest variance (PODS, Def. 3.1, Algorithm 2).

    Xu, Savani, Fang & Kolter, "Not All Rollouts are Useful", arXiv:2504.13818.

    Some best subset is the m - k lowest and the k highest rewards for some k in 0..m (Lemma 3.1),
    so m + 1 splits are compared instead of C(n, m) subsets. Prefix sums of r and r^2 give each
    split's variance in O(1): O(n log n) in all, for the sort. Among equal rewards the earlier
    rollout ranks lower; among tied splits the one with the fewest high rewards wins.

    Args:
        group: rewards (n,); only their differences matter. They may come as a plain array.
        m: rollouts to keep, 1 <= m <= n.
        rng: unused; every rule has the same signature.

    Raises:
        ValueError: m is not in 1..n, or a reward is NaN or infinite.

    >>> rewards = np.array([0.0, 1.0, 0.4, 1.1, 0.1])
    >>> group = Group(rewards, rewards >= 1, np.ones(5, dtype=np.int64))
    >>> max_variance(group, 3, np.random.default_rng(0))  # two low rewards vary more
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
    1108-1116 at 187f43b), so that storing a better one overwrites the m highest with it, and later
    splits take their highs from what is left: of binary rewards with enough of both it keeps one
    correct rollout and m - 1 wrong ones. In float32, as there, since rounding decides between
    splits that are tied. It is here only to reproduce those curves.

    Raises:
        ValueError: n/2 < m < n, where that code keeps some rollouts twice; or as `max_variance`.

    >>> rewards = np.array([1.0, 0.0] * 4)
    >>> group = Group(rewards, rewards >= 1, np.ones(8, dtype=np.int64))
    >>> rewards[max_variance_aliased(group, 4, np.random.default_rng(0))]
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
            best[:], best_variance = split, variance
    return np.sort(best)


def max_reward(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m highest rewards, the earlier rollout first among equals (PODS rule ablation).

    >>> rewards = np.array([0.0, 1.0, 1.0, 0.5])
    >>> group = Group(rewards, rewards >= 1, np.ones(4, dtype=np.int64))
    >>> max_reward(group, 1, np.random.default_rng(0))
    array([1])
    """
    return np.sort(np.argsort(-_checked(group, m), kind="stable")[:m])


def random(group: Group | Rewards, m: int, rng: Generator) -> Indices:
    """Keep a uniformly drawn m-subset: the update of GRPO with m, at the cost of n rollouts."""
    return np.sort(rng.choice(len(_checked(group, m)), m, replace=False))


def keep_all(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep everything (GRPO); m must be n."""
    if m != (n := len(_checked(group, m))):
        raise ValueError(f"rule all keeps every rollout: m={m} must be n={n}")
    return np.arange(m)


def percentile(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the rollouts at m evenly spaced quantiles of the reward: (i + 1/2)/m, i < m.

    This rule is ours, a control that spreads over the rewards without seeking the extremes:
    neither version 1 of PODS nor its released code has one.

    >>> rewards = np.arange(8.0)
    >>> percentile(Group(rewards, rewards > 3, np.ones(8, np.int64)), 2, np.random.default_rng(0))
    array([2, 6])
    """
    order = np.argsort(_checked(group, m), kind="stable")
    ranks = (2 * np.arange(m) + 1) * len(order) // (2 * m)
    return np.sort(order[ranks])


def max_abs_advantage(group: Group | Rewards, m: int, rng: Generator | None = None) -> Indices:
    """Keep the m largest |r - mean|: the largest |advantage| over the full group (CPPO).

    Lin et al., CPPO, arXiv:2503.22342 (src/open_r1/grpo_trainer_gsm.py:870-930); it goes with
    `advantage.baseline=full`. There the smallest |advantage| of all prompts of a process are
    dropped together and other prompts take their place; here each group keeps m. Among equals the
    earlier rollout is kept.

    >>> rewards = np.array([0.0, 0.0, 1.0, 0.0])
    >>> group = Group(rewards, rewards >= 1, np.ones(4, dtype=np.int64))
    >>> max_abs_advantage(group, 2, np.random.default_rng(0))
    array([0, 2])
    """
    distance = np.abs(_centred(_checked(group, m)))
    return np.sort(np.argsort(-np.round(distance / TIE) * TIE, kind="stable")[:m])


def balanced(group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Keep m/2 right and m/2 wrong rollouts, drawn uniformly; the other side fills what is missing.

    The selection of Reinforce-Ada's balanced variant (Xiong et al., arXiv:2510.04996), which goes
    with `advantage.baseline=full advantage.scale=none`: r - mean over all samples. For odd m one
    more is wrong (RLHFlow/Reinforce-Ada@05be605, verl/trainer/ppo/ray_trainer.py:1069-1089,
    target_pos = m // 2); where one kind is short, the other fills up. Two things differ still: of
    each kind the authors keep those that were generated first, while here they are drawn, which is
    the same in distribution where all n are generated at once; and a sample is right for them if
    its reward is above 0.7, here if its answer is.

    >>> rewards = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    >>> group = Group(rewards, rewards >= 1, np.ones(5, dtype=np.int64))
    >>> 2 in balanced(group, 4, np.random.default_rng(0))
    True
    """
    _checked(group, m)
    order = rng.permutation(len(group.correct))
    right, wrong = order[group.correct[order]], order[~group.correct[order]]
    rights = int(np.clip(m // 2, m - len(wrong), len(right)))
    return np.sort(np.concatenate([right[:rights], wrong[: m - rights]]))


def _checked(group: Group | Rewards, m: int) -> Rewards:
    rewards = group.rewards if isinstance(group, Group) else np.asarray(group, dtype=np.float64)
    if not 1 <= m <= len(rewards):
        raise ValueError(f"cannot keep m={m} of n={len(rewards)} rollouts")
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards}")
    return rewards


def _centred(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale to mean 0 and largest size 1, so that squares neither overflow nor vanish."""
    scaled = rewards / (max(rewards.max(), -rewards.min()) or 1.0)
    scaled -= scaled.mean()
    return np.asarray(scaled / (max(scaled.max(), -scaled.min()) or 1.0))


Rule = Callable[[Group, int, np.random.Generator], Indices]
RuleAcross = Callable[[Sequence[Group], int, np.random.Generator], Sequence[Indices]]
"""`rule(groups, m, rng)` returns the indices to keep of each group: at most G m in all, and of one
group any number, also none."""

RULES: dict[str, Rule] = {
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
    """Mark a rule that chooses from all groups of a step at once, those that are trained on.

    >>> @across_groups
    ... def right(groups, m, rng):  # all right rollouts of the step, at most G m of them
    ...     left = iter(range(m * len(groups)))
    ...     return [[i for i, _ in zip(np.flatnonzero(g.correct), left)] for g in groups]
    """
    rule.is_across_groups = True  # type: ignore[attr-defined]
    return rule


def is_across_groups(rule: Rule | RuleAcross) -> bool:
    """Return whether a rule is marked with `across_groups`."""
    return getattr(rule, "is_across_groups", False)


def enough(rule: Rule | RuleAcross, group: Group, m: int) -> bool:
    """Return whether sampling in rounds can stop: the group has what the rule wants of it.

    `balanced` wants its m/2 right and m/2 wrong rollouts (Reinforce-Ada, arXiv:2510.04996;
    verl/trainer/ppo/ray_trainer.py:1087-1097 at 05be605). `max_variance` wants m rollouts of
    which half have the lowest and half the highest reward of the group (with odd m, one more of
    either): no further reward in that range gives a larger variance. A rule of one's own says it by
    a function
    `rule.enough(group, m)`.
    """
    if len(group.rewards) < m:
        return False
    half = m // 2
    if rule is balanced:
        right = int(group.correct.sum())
        return right >= half and len(group.correct) - right >= m - half
    if rule is max_variance:
        lowest, highest = group.rewards.min(), group.rewards.max()
        ends = (group.rewards == lowest).sum(), (group.rewards == highest).sum()
        return bool(lowest < highest and min(ends) >= half and sum(ends) >= m)
    return bool(rule.enough(group, m))  # type: ignore[union-attr]


def find_rule(name: str) -> Rule | RuleAcross:
    """Return the rule called `name`, or the function `module:function` from outside the package.

    Raises:
        ValueError: no such rule, module or function.
    """
    if ":" not in name:
        if name not in RULES:
            raise ValueError(f"must be one of {', '.join(RULES)}, or module:function")
        return RULES[name]
    rule: Rule | RuleAcross = import_function(name)
    return rule


def keep(rule: Rule, group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Apply a rule and check its result, since the rule may be a user's.

    Raises:
        ValueError: the rule did not return m distinct indices of the group's rollouts.
    """
    kept = np.asarray(rule(group, m, rng))
    if kept.shape != (m,) or not _are_indices(kept, len(group.rewards)):
        name = getattr(rule, "__name__", rule)
        raise ValueError(f"rule {name} must return {m} distinct indices, got {kept.tolist()}")
    return np.sort(kept).astype(np.intp)


def keep_across(
    rule: RuleAcross, groups: Sequence[Group], m: int, rng: np.random.Generator
) -> list[Indices]:
    """Apply a rule across groups and check its result.

    Raises:
        ValueError: it did not return distinct indices of each group, at most G m in all.
    """
    returned = rule(groups, m, rng)
    try:
        kept = [np.array([*indices], dtype=None if len(indices) else np.intp)
                for indices in returned]  # fmt: skip
    except TypeError:
        kept = []
    sizes = [len(group.rewards) for group in groups]
    good = len(kept) == len(groups) and all(map(_are_indices, kept, sizes))
    if not good or sum(map(len, kept)) > m * len(groups):
        name = getattr(rule, "__name__", rule)
        raise ValueError(
            f"rule {name} must return distinct indices of each of {len(groups)} groups, at most "
            f"{m * len(groups)} in all, got {returned}"
        )
    return [np.sort(indices).astype(np.intp) for indices in kept]


def _are_indices(kept: NDArray[np.generic], n: int) -> bool:
    """Return whether these are distinct indices of n rollouts, or none at all."""
    if kept.ndim != 1 or not np.issubdtype(kept.dtype, np.integer):
        return False
    values = kept.tolist()
    return len(set(values)) == len(values) and all(0 <= value < n for value in values)
