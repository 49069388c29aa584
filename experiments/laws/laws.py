"""Published laws for n, as allocations of one's own.

An allocation returns the rollouts of each prompt of a step, of what was `seen` of each: (rollouts,
right). Where a paper has more than a hook gives, the docstring says what is left out.
"""

from collections.abc import Sequence

import numpy as np

Seen = Sequence[tuple[int, int]]


def rising(seen: Seen, n: int, m: int, step: int) -> list[int]:
    """IsoCompute (arXiv:2603.12151): the best n rises with compute and levels off.

    There n is chosen before a run, by its budget, and the coefficients stand in figures only. Here
    it doubles within a run from 8 to n, every 100 steps.

    >>> [rising([(0, 0)], 64, 64, step) for step in (1, 100, 200, 300, 900)]
    [[8], [16], [32], [64], [64]]
    """
    return [min(n, 8 << step // 100)] * len(seen)


def inverse(seen: Seen, n: int, m: int, step: int) -> list[int]:
    """As sGPO (arXiv:2606.08854): the smallest of 2, 4 and 8 that is 1/p or more.

    There p is estimated once, from eight samples before training, and prompts of p > 0.75 are left
    out. Here it is what the run saw, and those get 2.

    >>> inverse([(0, 0), (8, 8), (8, 3), (8, 1)], 8, 8, 1)
    [8, 2, 4, 8]
    """
    rates = [(right + 0.1) / (rollouts + 1) for rollouts, right in seen]
    return [2 if p >= 0.5 else 4 if p >= 0.25 else 8 for p in rates]


def variance(seen: Seen, n: int, m: int, step: int) -> list[int]:
    """VIP (arXiv:2602.01601), for RLOO: n_i - 1 in proportion to sqrt(p (1 - p)), from 4 to 32.

    There a Gaussian process over embedded prompts predicts p. Here a prompt has Jeffreys' posterior
    of what the run saw of it. Rounded down, so that a step has n rollouts a prompt or fewer.

    >>> variance([(16, 8), (16, 16), (0, 0), (0, 0)], 16, 16, 1)
    [18, 7, 18, 18]
    """
    rollouts, right = np.array(seen, dtype=float).T
    p = (right + 0.5) / (rollouts + 1)
    root = np.sqrt(p * (1 - p))
    counts = np.clip(1 + (n - 1) * len(seen) * root / root.sum(), 4, 32).astype(int)
    while counts.sum() > n * len(seen):
        counts[counts.argmax()] -= 1
    return [int(count) for count in counts]


def screened(seen: Seen, n: int, m: int, step: int) -> list[int]:
    """SPEED (arXiv:2506.09016): 4 rollouts screen a prompt, and 20 more follow if they differ.

    There both are trained on together. Here a prompt is screened when it first comes up, trained
    on if it is mixed (`group_filter=skip`), and has 24 rollouts on all later visits if it was ever
    right and ever wrong.

    >>> screened([(0, 0), (4, 1), (4, 4), (4, 0)], 24, 24, 1)
    [4, 24, 4, 4]
    """
    return [24 if 0 < right < rollouts else 4 for rollouts, right in seen]
