"""What happens to prompts whose rollouts all fare alike: normalised, they have no advantage.

DAPO's dynamic sampling (Yu et al., arXiv:2503.14476) samples until the batch has only groups with
0 < right < n; GRESO (arXiv:2506.02177) does the same by rewards, with batches that adapt.
"""

import numpy as np
from numpy.typing import NDArray

from pods.config import GroupFilterConfig


def informative(rewards: NDArray[np.float64], correct: NDArray[np.bool_], metric: str) -> bool:
    """Say whether rollouts differ: in `reward`, or in whether they are right (`correct`).

    >>> partly_formed = np.array([0.0, 0.1])
    >>> wrong = np.array([False, False])
    >>> [informative(partly_formed, wrong, metric) for metric in ("reward", "correct")]
    [True, False]
    """
    values = rewards if metric == "reward" else correct
    return bool(values.min() != values.max())


def next_batch(
    config: GroupFilterConfig, wanted: int, have: int, sampled: int, fruitful: int
) -> int:
    """Prompts to sample after a batch that did not fill the step.

    Adaptive as in GRESO's code (verl/trainer/ppo/ray_trainer.py:1153-1162 at b277843): margin times
    the missing prompts over the last batch's share of informative ones, rounded down, within
    min_batch and batch. There such a batch is also the last of its step, full or not; here not.

    Args:
        config: the filter's.
        wanted: informative prompts that the step trains on.
        have: of them so far, fewer.
        sampled: prompts of the last batch.
        fruitful: informative ones among them.

    >>> config = GroupFilterConfig("resample", "reward", 384, 10, True, 64, 1.25)
    >>> next_batch(config, wanted=256, have=192, sampled=384, fruitful=192)  # 64 / 0.5 * 1.25
    160
    """
    full = config.batch or wanted
    if not config.adaptive or fruitful == 0:
        return full
    needed = int((wanted - have) * sampled / fruitful * config.margin)
    return max(min(needed, full), config.min_batch)
