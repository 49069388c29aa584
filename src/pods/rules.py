"""The selection rules for scripts: functions of the rewards of one group."""

from pods.method.rules import (
    RULES,
    across_groups,
    balanced,
    keep_all,
    max_abs_advantage,
    max_reward,
    max_variance,
    max_variance_aliased,
    percentile,
    random,
)

__all__ = [
    "RULES",
    "across_groups",
    "balanced",
    "keep_all",
    "max_abs_advantage",
    "max_reward",
    "max_variance",
    "max_variance_aliased",
    "percentile",
    "random",
]
