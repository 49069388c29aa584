"""Prompt selection: which problems of the train pool a step generates rollouts for."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pods.randomness import derive


def uniform(seed: int, step: int, prompts: int, pool: int) -> NDArray[np.intp]:
    """Walk through a fresh permutation of the pool each epoch; a step takes the next `prompts`.

    Stateless: position `step * prompts` alone decides, so a resumed run needs nothing saved.

    Args:
        seed: the run's seed.
        step: 0 for the first step.
        prompts: prompts a step (B).
        pool: problems in the train pool.

    Returns:
        (B,) indices into the pool; a step that crosses an epoch's end takes from both.
    """
    positions = np.arange(step * prompts, (step + 1) * prompts)
    epochs, places = np.divmod(positions, pool)
    orders = {
        epoch: np.random.default_rng(derive(seed, "prompt order", epoch)).permutation(pool)
        for epoch in map(int, np.unique(epochs))
    }
    return np.array([orders[int(e)][p] for e, p in zip(epochs, places, strict=True)], np.intp)


SELECTORS: dict[str, Callable[[int, int, int, int], NDArray[np.intp]]] = {"uniform": uniform}
