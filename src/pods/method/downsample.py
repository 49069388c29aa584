"""Down-sampling rules: which m of a prompt's n rollouts the policy is updated on.

A rule sees one group at a time, so it cannot mix groups, and never text or tokens. Source: Xu,
Savani, Fang & Kolter, "Not All Rollouts are Useful" (PODS), arXiv:2504.13818.

Shapes: n = rollouts generated for one prompt, m = rollouts kept. Every rule returns m distinct
indices in ascending order, so that with m = n each of them is GRPO.
"""

import importlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pods.records import Group

Indices = NDArray[np.intp]  # (m,)
Rule = Callable[[Group, int, np.random.Generator], Indices]

TIE = 1e-12  # splits are tied if their spreads differ by less, relative to the whole group's


def max_variance(group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Keep the m rollouts whose rewards have the largest variance (Def. 3.1, Algorithm 2).

    Some best subset is the m - k lowest and the k highest rewards for some k in 0..m (Lemma 3.1),
    so m + 1 splits are compared instead of C(n, m) subsets. Prefix sums of r and r^2 give each
    split's variance in O(1): O(n log n) in all, for the sort. Among equal rewards the earlier
    rollout ranks lower; among tied splits the one with the fewest high rewards wins.

    Args:
        group: rewards (n,); only their differences matter.
        m: rollouts to keep, 1 <= m <= n.
        rng: unused; every rule has the same signature.

    Raises:
        ValueError: m is not in 1..n, or a reward is NaN or infinite.

    >>> rewards = np.array([0.0, 1.0, 0.4, 1.1, 0.1])
    >>> group = Group(rewards, rewards >= 1, np.ones(5, dtype=np.int64))
    >>> max_variance(group, 3, np.random.default_rng(0))  # two lows beat two highs
    array([0, 3, 4])
    """
    rewards = _checked(group, m)
    order = np.argsort(rewards, kind="stable")
    ascending = _centred(rewards[order])
    sums = np.concatenate([[0.0], np.cumsum(ascending)])
    squares = np.concatenate([[0.0], np.cumsum(ascending**2)])
    k = np.arange(m + 1)
    low, high = m - k, len(rewards) - k
    total = sums[low] + sums[-1] - sums[high]
    spread = squares[low] + squares[-1] - squares[high] - total**2 / m  # m times the variance
    best = int(np.argmax(spread >= spread.max() - TIE * squares[-1]))
    return np.sort(np.concatenate([order[: low[best]], order[high[best] :]]))


def max_reward(group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Keep the m highest rewards, the earlier rollout first among equals (PODS rule ablation).

    >>> rewards = np.array([0.0, 1.0, 1.0, 0.5])
    >>> group = Group(rewards, rewards >= 1, np.ones(4, dtype=np.int64))
    >>> max_reward(group, 1, np.random.default_rng(0))
    array([1])
    """
    return np.sort(np.argsort(-_checked(group, m), kind="stable")[:m])


def random(group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Keep a uniformly drawn m-subset: the update of GRPO with m, at the cost of n rollouts."""
    return np.sort(rng.choice(len(_checked(group, m)), m, replace=False))


def keep_all(group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Keep everything (GRPO); m must be n."""
    if m != len(_checked(group, m)):
        raise ValueError(f"rule all keeps every rollout: m={m} must be n={len(group.rewards)}")
    return np.arange(m)


RULES: dict[str, Rule] = {
    "max_variance": max_variance,
    "max_reward": max_reward,
    "random": random,
    "all": keep_all,
}


def find_rule(name: str) -> Rule:
    """Return the rule called `name`, or the function `module:function` from outside the package.

    Raises:
        ValueError: no such rule, module or function.
    """
    if ":" not in name:
        if name not in RULES:
            raise ValueError(f"must be one of {', '.join(RULES)}, or module:function")
        return RULES[name]
    module, _, function = name.partition(":")
    try:
        found: Rule = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise ValueError(f"cannot import it as module:function ({error})") from error
    if not callable(found):
        raise ValueError(f"cannot import it as module:function ({function} is not a function)")
    return found


def keep(rule: Rule, group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Apply a rule and check what it returned, since it may be a user's.

    Raises:
        ValueError: not m distinct indices of the group's rollouts.
    """
    kept = np.asarray(rule(group, m, rng))
    good = kept.shape == (m,) and np.issubdtype(kept.dtype, np.integer)
    if not good or len(np.unique(kept)) != m or kept.min() < 0 or kept.max() >= len(group.rewards):
        name = getattr(rule, "__name__", rule)
        raise ValueError(f"rule {name} must return {m} distinct indices, got {kept.tolist()}")
    return np.sort(kept).astype(np.intp)


def _checked(group: Group, m: int) -> NDArray[np.float64]:
    if not 1 <= m <= len(group.rewards):
        raise ValueError(f"cannot keep m={m} of n={len(group.rewards)} rollouts")
    if not np.isfinite(group.rewards).all():
        raise ValueError(f"rewards must be finite, got {group.rewards}")
    return group.rewards


def _centred(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale to mean 0 and size about 1, so that squares neither overflow nor vanish."""
    scaled = rewards / (np.abs(rewards).max() or 1.0)
    scaled = scaled - scaled.mean()
    return np.asarray(scaled / (np.abs(scaled).max() or 1.0))
