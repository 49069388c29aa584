"""The methods as published, as pure functions of arrays.

Down-sampling rules (`rules.py`), advantages and losses (`grpo.py`), the group filter, and the
selection and order of prompts. Nothing here reads a file or a model. Start reading in `rules.py`,
whose rules can be imported from here and need numpy alone.
"""

from pods.method.rules import (
    balanced,
    max_abs_advantage,
    max_reward,
    max_variance,
    percentile,
    random,
)

__all__ = ["balanced", "max_abs_advantage", "max_reward", "max_variance", "percentile", "random"]
