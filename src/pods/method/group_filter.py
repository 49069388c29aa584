"""The group filter: prompts whose rollouts all have equal rewards carry no gradient.

DAPO's dynamic sampling (Yu et al., arXiv:2503.14476) samples until the batch has only groups with
0 < right < n; GRESO (arXiv:2506.02177) does the same by rewards, with batches that adapt.
"""

import numpy as np
from numpy.typing import NDArray

from pods.config.method_keys import GroupFilterConfig

MARGIN = 1.25  # prompts sampled per prompt that seems needed, as in GRESO's scripts


def informative(rewards: NDArray[np.float64], correct: NDArray[np.bool_], metric: str) -> bool:
    """Return whether rollouts differ: in their reward, or in whether they are correct."""
    values = rewards if metric == "reward" else correct
    return bool(values.min() != values.max())


def next_batch(
    config: GroupFilterConfig, wanted: int, have: int, sampled: int, num_informative: int
) -> int:
    """Return how many prompts to sample after a batch that did not fill the step.

    Adaptive as in GRESO's code (verl/trainer/ppo/ray_trainer.py:1153-1162 at b277843): margin times
    the missing prompts over the last batch's share of informative ones, rounded down, and between
    a sixth of batch (64 of 384 in its scripts) and batch. There such a batch is also the last of
    its step, full or not; here it is not.

    The step trains on `wanted` informative prompts and has fewer so far; of the `sampled` prompts
    of the last batch `num_informative` were.

    >>> config = GroupFilterConfig("resample", "reward", 384, 10, True)
    >>> next_batch(config, wanted=256, have=192, sampled=384, num_informative=192)
    160
    """
    full = config.batch or wanted
    if not config.adaptive or num_informative == 0:
        return full
    needed = int((wanted - have) * sampled / num_informative * MARGIN)
    return max(min(needed, full), full // 6, 1)
