"""Find a rule by its name, apply it, and check what it returns, since it may be a user's."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pods.method.rules import RULES, Indices, Rule, RuleAcross
from pods.system.imports import call_own, import_function
from pods.types import Group


def find_rule(name: str) -> Rule | RuleAcross:
    """Return the rule called `name`, or the function `module:function` from outside the package.

    Raises:
        ValueError: no such rule, module or function.
    """
    if ":" not in name and name not in RULES:
        raise ValueError(f"must be one of {', '.join(RULES)}, or module:function")
    rule: Rule | RuleAcross = RULES[name] if name in RULES else import_function(name)
    return rule


def keep(rule: Rule, group: Group, m: int, rng: np.random.Generator) -> Indices:
    """Apply a rule and check its result.

    Raises:
        ValueError: the rule failed, or did not return m distinct indices of the group's rollouts.
    """
    must = f"must return {m} distinct indices of 0 to {len(group.rewards) - 1}"
    name = f"rule {getattr(rule, '__name__', rule)}"
    return call_own(
        name, rule, (group, m, rng), lambda kept: _distinct(must, [kept], [group], m, m)
    )[0]


def keep_across(
    rule: RuleAcross, groups: Sequence[Group], m: int, rng: np.random.Generator
) -> list[Indices]:
    """Apply a rule across groups and check its result.

    Raises:
        ValueError: it failed, or did not return distinct indices of each group, at most G m in all.
    """
    most, name = m * len(groups), f"rule {getattr(rule, '__name__', rule)}"
    must = f"must return distinct indices of each of {len(groups)} groups, at most {most} in all"
    return call_own(
        name, rule, (groups, m, rng), lambda kept: _distinct(must, kept, groups, 0, most)
    )


def _distinct(
    must: str, returned: Any, groups: Sequence[Group], least: int, most: int
) -> list[Indices]:
    """Return the indices that a rule chose of each group in ascending order; say what is wrong."""
    chosen = list(returned) if isinstance(returned, Iterable) else [returned]
    if len(chosen) != len(groups):
        raise ValueError(f"{must}, not {returned}")
    kept = []
    for indices, group in zip(chosen, groups, strict=True):
        array = np.asarray(indices)
        if array.size and (array.ndim != 1 or not np.issubdtype(array.dtype, np.integer)):
            raise ValueError(f"{must}, not {indices}")
        distinct, counts = np.unique(array.astype(np.intp), return_counts=True)
        for index, count in zip(distinct, counts, strict=True):
            if count > 1 or not 0 <= index < len(group.rewards):
                raise ValueError(
                    f"{must}: {index} is {'repeated' if count > 1 else 'out of range'}"
                )
        kept.append(distinct)
    if not least <= sum(map(len, kept)) <= most:
        raise ValueError(f"{must}, not {sum(map(len, kept))}")
    return kept
