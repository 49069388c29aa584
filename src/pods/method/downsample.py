"""The door to the down-sampling rules: by name, from outside the package, and checked."""

import importlib
from collections.abc import Callable

import numpy as np

from pods.method import rules
from pods.method.rules import Indices
from pods.records import Group

Rule = Callable[[Group, int, np.random.Generator], Indices]

RULES: dict[str, Rule] = {
    "max_variance": rules.max_variance,
    "max_variance_aliased": rules.max_variance_aliased,
    "max_reward": rules.max_reward,
    "percentile": rules.percentile,
    "max_abs_advantage": rules.max_abs_advantage,
    "balanced": rules.balanced,
    "random": rules.random,
    "all": rules.keep_all,
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
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        why = str(error) if isinstance(error, ImportError | AttributeError) else repr(error)
        raise ValueError(f"cannot import it as module:function ({why})") from error
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
