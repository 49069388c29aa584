"""Find a rule by its name, apply it, and check what it returns, since it may be a user's."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from pods.method.rules import RULES, Indices, Rule, RuleAcross
from pods.system.imports import import_function
from pods.types import Group


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
    """Apply a rule and check its result.

    Raises:
        ValueError: the rule did not return m distinct indices of the group's rollouts.
    """
    returned = np.asarray(rule(group, m, rng))
    kept = _distinct(returned, len(group.rewards))
    if kept is None or len(kept) != m:
        name = getattr(rule, "__name__", rule)
        raise ValueError(f"rule {name} must return {m} distinct indices, got {returned.tolist()}")
    return kept


def keep_across(
    rule: RuleAcross, groups: Sequence[Group], m: int, rng: np.random.Generator
) -> list[Indices]:
    """Apply a rule across groups and check its result.

    Raises:
        ValueError: it did not return distinct indices of each group, at most G m in all.
    """
    returned, kept = rule(groups, m, rng), list[Indices | None]()
    with suppress(TypeError, ValueError):  # raised by what is no list of indices for each group
        pairs = zip(groups, returned, strict=True)
        kept = [_distinct(np.array([*indices]), len(group.rewards)) for group, indices in pairs]
    good = [indices for indices in kept if indices is not None]
    if len(good) != len(groups) or sum(map(len, good)) > m * len(groups):
        name = getattr(rule, "__name__", rule)
        raise ValueError(
            f"rule {name} must return distinct indices of each of {len(groups)} groups, at most "
            f"{m * len(groups)} in all, got {returned}"
        )
    return good


def _distinct(kept: NDArray[np.generic], n: int) -> Indices | None:
    """Return distinct indices of n rollouts in ascending order; None if these are others."""
    if kept.shape == (0,):
        return np.empty(0, np.intp)
    if kept.ndim != 1 or not np.issubdtype(kept.dtype, np.integer):
        return None
    distinct = np.unique(kept)
    good = len(distinct) == len(kept) and distinct[0] >= 0 and distinct[-1] < n
    return distinct.astype(np.intp) if good else None
